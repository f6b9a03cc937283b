/*
 * Measures the arbiter's library: `arbiter allocation HOSTS LOAD BATCH ORDER SLOTS` (timeslots alone), `arbiter paths K SLOTS` (paths of
 * permutations alone) and `arbiter whole K LOAD BATCH CELL SLOTS` (both). Prints names and numbers. Flows arrive by a Poisson process, and
 * have 2 to 198 KB (section 5.1 of the paper), the same in every run.
 */
#include "arbiter.h"
#include "demands.h"
#include "layout.h"
#include "matching.h"
#include "paths.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>
#include <queue>
#include <random>
#include <string>

namespace {

using namespace sopa::allocator;

constexpr double MTU = 1500, SMALLEST_FLOW = 2000, LARGEST_FLOW = 198000;
constexpr unsigned SAMPLES = 12; /* batches that are compared with the best matching */

const std::map<std::string, Order> ORDERS = {
	{"min-max-min", Order::min_max_min}, {"alternating", Order::alternating}, {"smallest", Order::smallest}};

double now()
{
	return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Fabric fabric_of(uint32_t pods, uint32_t edges, uint32_t aggregations, uint32_t cores, uint32_t hosts)
{
	const auto ones = [](size_t size) { return std::vector<uint8_t>(size, 1); };
	return {pods, edges, aggregations, cores, hosts, ones(size_t{pods} * edges * hosts), ones(size_t{pods} * edges * aggregations),
		ones(size_t{pods} * cores)};
}

Fabric fat_tree(uint32_t k) { return fabric_of(k, k / 2, k / 2, k * k / 4, k / 2); }

/* What batches took. */
class Times {
public:
	void add(double ns, size_t cells, unsigned slots)
	{
		m_slots += slots;
		m_cells += cells;
		m_of_cell.push_back(ns / static_cast<double>(cells));
		m_of_slot.push_back(ns / 1e3 / slots);
	}

	/* Medians, which bear that other programs run at times. */
	void print(uint32_t hosts)
	{
		std::printf("ns_per_cell %.2f\nus_per_slot %.3f\n", part_of(m_of_cell, 0.5), part_of(m_of_slot, 0.5));
		std::printf("us_per_slot_p99 %.3f\n", part_of(m_of_slot, 0.99));
		std::printf("carried %.3f\n", static_cast<double>(m_cells) / m_slots / hosts);
	}

private:
	static double part_of(std::vector<double> &all, double part)
	{
		std::sort(all.begin(), all.end());
		return all[static_cast<size_t>(part * static_cast<double>(all.size() - 1))];
	}

	std::vector<double> m_of_cell, m_of_slot;
	size_t m_cells = 0;
	unsigned m_slots = 0;
};

struct Flow {
	uint32_t source, destination, cells;
};

class Flows {
public:
	Flows(uint32_t hosts, double load, unsigned batch, double cell)
	    : m_hosts(hosts), m_cell(cell), m_number(load * hosts * batch * cell / ((SMALLEST_FLOW + LARGEST_FLOW) / 2))
	{
	}

	/* Those that arrive during a batch. */
	std::vector<Flow> arrive()
	{
		std::vector<Flow> flows(static_cast<size_t>(m_number(m_draw)));
		for (Flow &flow : flows) {
			flow.source = static_cast<uint32_t>(m_draw() % m_hosts);
			flow.destination = static_cast<uint32_t>(m_draw() % (m_hosts - 1));
			flow.destination += flow.destination >= flow.source;
			flow.cells = static_cast<uint32_t>(std::ceil(m_size(m_draw) / m_cell));
		}
		return flows;
	}

private:
	std::mt19937_64 m_draw{1};
	uint32_t m_hosts;
	double m_cell;
	std::poisson_distribution<int> m_number;
	std::uniform_real_distribution<double> m_size{SMALLEST_FLOW, LARGEST_FLOW};
};

/* The most cells that a batch can carry (Dinic, Algorithm for solution of a problem of maximum flow, 1970). */
class MaximumFlow {
public:
	explicit MaximumFlow(size_t nodes) : m_of(nodes), m_level(nodes), m_next(nodes) {}

	void add(size_t from, size_t to, uint32_t capacity)
	{
		m_of[from].push_back(m_arcs.size());
		m_arcs.push_back({to, capacity});
		m_of[to].push_back(m_arcs.size());
		m_arcs.push_back({from, 0});
	}

	uint64_t run(size_t from, size_t to)
	{
		uint64_t flow = 0;
		while (find_levels(from, to)) {
			std::fill(m_next.begin(), m_next.end(), 0);
			while (const uint32_t more = push(from, to, UINT32_MAX))
				flow += more;
		}
		return flow;
	}

private:
	struct Arc {
		size_t to;
		uint32_t capacity;
	};

	bool find_levels(size_t from, size_t to)
	{
		std::fill(m_level.begin(), m_level.end(), -1);
		m_level[from] = 0;
		std::queue<size_t> nodes({from});
		for (; !nodes.empty(); nodes.pop()) {
			for (size_t arc : m_of[nodes.front()]) {
				if (m_arcs[arc].capacity && m_level[m_arcs[arc].to] < 0) {
					m_level[m_arcs[arc].to] = m_level[nodes.front()] + 1;
					nodes.push(m_arcs[arc].to);
				}
			}
		}
		return m_level[to] >= 0;
	}

	uint32_t push(size_t from, size_t to, uint32_t most)
	{
		if (from == to)
			return most;
		for (size_t &at = m_next[from]; at < m_of[from].size(); at++) {
			Arc &arc = m_arcs[m_of[from][at]];
			if (!arc.capacity || m_level[arc.to] != m_level[from] + 1)
				continue;
			if (const uint32_t pushed = push(arc.to, to, std::min(most, arc.capacity))) {
				arc.capacity -= pushed;
				m_arcs[m_of[from][at] ^ 1].capacity += pushed;
				return pushed;
			}
		}
		return 0;
	}

	std::vector<Arc> m_arcs;
	std::vector<std::vector<size_t>> m_of;
	std::vector<int> m_level;
	std::vector<size_t> m_next;
};

uint64_t best_matching(Demands &demands, uint32_t hosts, unsigned batch)
{
	MaximumFlow network(2 * size_t{hosts} + 2);
	for (uint32_t host = 0; host < hosts; host++) {
		network.add(2 * size_t{hosts}, host, batch);
		network.add(size_t{hosts} + host, 2 * size_t{hosts} + 1, batch);
	}
	for (unsigned number = demands.next(0); number < Demands::BUCKETS; number = demands.next(number + 1)) {
		for (const Demands::Copy &copy : demands.bucket(number))
			network.add(copy.source, size_t{hosts} + copy.destination, copy.cells);
	}
	return network.run(2 * size_t{hosts}, 2 * size_t{hosts} + 1);
}

size_t cells_of(const std::vector<Match> &matches)
{
	size_t cells = 0;
	for (const Match &match : matches)
		cells += count(match.slots);
	return cells;
}

void measure_allocation(uint32_t hosts, double load, unsigned batch, Order order, unsigned slots)
{
	constexpr uint32_t OF_RACK = 16;
	const Fabric fabric = fabric_of(1, hosts / OF_RACK, OF_RACK, 0, OF_RACK);
	const Layout layout(fabric);
	const std::unique_ptr<Matching> matching = Matching::make(layout, order, batch);
	matching->follow(fabric);
	Demands demands;
	Flows flows(hosts, load, batch, MTU);
	const unsigned batches = slots / batch, warm = batches / 2;
	Times times;
	double share = 0;
	size_t samples = 0;
	for (unsigned number = 0; number < batches; number++) {
		for (const Flow &flow : flows.arrive())
			demands.set(flow.source, flow.destination, demands.cells(flow.source, flow.destination) + flow.cells);
		const bool sampled = number >= warm && (number - warm) % std::max(1u, (batches - warm) / SAMPLES) == 0;
		const uint64_t best = sampled ? best_matching(demands, hosts, batch) : 0;
		const double begin = now();
		const std::vector<Match> &matches = matching->match(demands);
		const double end = now();
		if (number >= warm)
			times.add(end - begin, cells_of(matches), batch);
		if (best) {
			share += static_cast<double>(cells_of(matches)) / static_cast<double>(best);
			samples++;
		}
	}
	times.print(hosts);
	std::printf("of_best %.4f\n", share / static_cast<double>(std::max<size_t>(1, samples)));
}

void measure_paths(uint32_t k, unsigned slots)
{
	const Fabric fabric = fat_tree(k);
	const Layout layout(fabric);
	const std::unique_ptr<PathFinder> paths = PathFinder::make(layout, fabric, Paths::colouring, 1);
	std::mt19937_64 draw(7);
	std::vector<uint32_t> to(layout.hosts);
	std::iota(to.begin(), to.end(), 0);
	Times times;
	size_t without = 0;
	for (unsigned slot = 0; slot < slots; slot++) {
		std::shuffle(to.begin(), to.end(), draw);
		std::vector<Grant> grants;
		for (uint32_t host = 0; host < layout.hosts; host++) {
			if (to[host] != host)
				grants.push_back({host, to[host], 0, NO_HOP, NO_HOP});
		}
		std::shuffle(grants.begin(), grants.end(), draw);
		const double begin = now();
		without += paths->assign(grants.data(), grants.size());
		times.add(now() - begin, grants.size(), 1);
	}
	times.print(layout.hosts);
	std::printf("without %zu\n", without);
}

void measure_whole(uint32_t k, double load, unsigned batch, double cell, unsigned slots)
{
	const Fabric fabric = fat_tree(k);
	Arbiter arbiter(fabric, Order::min_max_min, Paths::colouring, batch, 1);
	const uint32_t hosts = static_cast<uint32_t>(fabric.host.size());
	std::vector<std::map<uint32_t, uint32_t>> left(hosts);
	Flows flows(hosts, load, batch, cell);
	const unsigned batches = slots / batch, warm = batches / 2;
	Times times;
	for (unsigned number = 0; number < batches; number++) {
		std::vector<Flow> arrived = flows.arrive();
		for (Flow &flow : arrived)
			flow.cells = left[flow.source][flow.destination] += flow.cells;
		const double begin = now();
		for (const Flow &flow : arrived)
			arbiter.demand(flow.source, flow.destination, flow.cells);
		const std::vector<Grant> &granted = arbiter.batch();
		const double end = now();
		if (number >= warm)
			times.add(end - begin, granted.size(), batch);
		for (const Grant &grant : granted)
			left[grant.source][grant.destination]--;
	}
	times.print(hosts);
	std::printf("without %llu\n", static_cast<unsigned long long>(arbiter.statistics().unplaced));
}

} // namespace

int main(int count, char **values)
{
	const std::vector<std::string> its(values + 1, values + count);
	const auto number = [&](size_t at) { return static_cast<unsigned>(std::stoul(its.at(at))); };
	if (count == 7 && its[0] == "allocation")
		measure_allocation(number(1), std::stod(its[2]), number(3), ORDERS.at(its[4]), number(5));
	else if (count == 4 && its[0] == "paths")
		measure_paths(number(1), number(2));
	else if (count == 7 && its[0] == "whole")
		measure_whole(number(1), std::stod(its[2]), number(3), std::stod(its[4]), number(5));
	else
		return EXIT_FAILURE;
}
