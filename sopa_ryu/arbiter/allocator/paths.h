/* Paths for the cells of a slot (section 4 of the paper). */
#ifndef SOPA_ALLOCATOR_PATHS_H
#define SOPA_ALLOCATOR_PATHS_H

#include "layout.h"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace sopa::allocator {

class PathFinder {
public:
	static std::unique_ptr<PathFinder> make(const Layout &layout, const Fabric &fabric, Paths paths, uint64_t seed);
	virtual ~PathFinder() = default;

	/* Give the cells of one slot their hops. One between racks for which there is no path keeps NO_HOP. Returns the number of those. */
	virtual size_t assign(Grant *grants, size_t count) = 0;
};

/* What is left of each link in a slot, in both directions. */
class Occupancy {
public:
	Occupancy(const Layout &layout, const Fabric &fabric);

	/* Begin a slot. */
	void clear();

	/* Use a path between two racks, if all of its links have room. Returns whether they have. Within a pod the second hop does not matter. */
	bool put(uint32_t from, uint32_t to, unsigned up1, unsigned up2);

private:
	const Layout &m_layout;
	std::vector<uint8_t> m_edge, m_aggregation; /* capacities */
	std::vector<uint8_t> m_from_edge, m_to_edge, m_from_aggregation, m_to_aggregation;
};

/* Numbers that depend on nothing but the seed (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, 2014). */
class Draw {
public:
	explicit Draw(uint64_t seed) : m_state(seed) {}

	/* A number below a limit. */
	uint32_t operator()(uint32_t limit)
	{
		uint64_t mixed = m_state += 0x9e3779b97f4a7c15;
		mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
		mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
		return static_cast<uint32_t>(((mixed ^ mixed >> 31) >> 32) * limit >> 32);
	}

private:
	uint64_t m_state;
};

} // namespace sopa::allocator

#endif
