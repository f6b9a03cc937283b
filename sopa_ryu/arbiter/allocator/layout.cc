#include "layout.h"

#include <stdexcept>
#include <string>

namespace sopa::allocator {

namespace {

constexpr uint32_t MAX_INDEX = 255, MAX_UPLINKS = 254, MAX_HOSTS = 252; /* topologies/identity.py */

void check(const char *what, uint32_t value, uint32_t least, uint32_t most)
{
	if (value < least || value > most) {
		const std::string range = std::to_string(least) + " to " + std::to_string(most);
		throw std::invalid_argument(std::string(what) + " must be " + range + ", not " + std::to_string(value));
	}
}

void check_length(const char *what, const std::vector<uint8_t> &capacities, size_t expected)
{
	if (capacities.size() != expected) {
		const std::string lengths = std::to_string(expected) + " capacities, not " + std::to_string(capacities.size());
		throw std::invalid_argument(std::string(what) + " must have " + lengths);
	}
}

} // namespace

Layout::Layout(const Fabric &fabric)
    : pods(fabric.pods), edges(fabric.edges), aggregations(fabric.aggregations), cores(fabric.cores), hosts_of_rack(fabric.hosts)
{
	check("pods", pods, 1, MAX_INDEX);
	check("edges", edges, 1, MAX_INDEX);
	check("aggregations", aggregations, 1, MAX_UPLINKS);
	check("hosts", hosts_of_rack, 1, MAX_HOSTS);
	check("cores", cores, pods > 1 ? aggregations : 0, MAX_UPLINKS * aggregations);
	if (cores % aggregations)
		throw std::invalid_argument("cores must be a multiple of aggregations");
	group = cores / aggregations;
	racks = pods * edges;
	hosts = racks * hosts_of_rack;
	check_length("host", fabric.host, hosts);
	check_length("edge_uplink", fabric.edge_uplink, size_t{racks} * aggregations);
	check_length("aggregation_uplink", fabric.aggregation_uplink, size_t{pods} * cores);
	rack_of.resize(hosts);
	pod_of.resize(racks);
	for (uint32_t host = 0; host < hosts; host++)
		rack_of[host] = static_cast<uint16_t>(host / hosts_of_rack);
	for (uint32_t rack = 0; rack < racks; rack++)
		pod_of[rack] = static_cast<uint8_t>(rack / edges);
}

bool Layout::same_shape(const Fabric &fabric) const
{
	return fabric.pods == pods && fabric.edges == edges && fabric.aggregations == aggregations && fabric.cores == cores &&
	       fabric.hosts == hosts_of_rack;
}

} // namespace sopa::allocator
