/* The positions of a Clos fabric's hosts, racks and links, as in topologies/structure.py. */
#ifndef SOPA_ALLOCATOR_LAYOUT_H
#define SOPA_ALLOCATOR_LAYOUT_H

#include "arbiter.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sopa::allocator {

struct Layout {
	/* Throws std::invalid_argument if a number is out of the range of topologies/identity.py, or a vector has not the length that follows. */
	explicit Layout(const Fabric &fabric);

	bool same_shape(const Fabric &fabric) const;

	size_t edge_uplink(uint32_t rack, unsigned up1) const { return size_t{rack} * aggregations + up1; }
	size_t aggregation_uplink(uint32_t pod, unsigned up1, unsigned up2) const { return (size_t{pod} * aggregations + up1) * group + up2; }

	uint32_t pods, edges, aggregations, cores, hosts_of_rack;
	uint32_t group; /* core switches of a group: uplinks of an aggregation switch */
	uint32_t racks, hosts;
	std::vector<uint16_t> rack_of; /* [host] */
	std::vector<uint8_t> pod_of;   /* [rack] */
};

} // namespace sopa::allocator

#endif
