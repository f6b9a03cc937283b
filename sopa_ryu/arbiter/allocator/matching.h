/*
 * Timeslot allocation: matchings for the slots of a batch, by a bitmap of free slots for each host (section 3 of the paper). A demand gets as
 * many as are left at both of its ends. Racks and pods with less capacity above than below have bitmaps, too, so that no more
 * cells are granted than the links above them carry together.
 */
#ifndef SOPA_ALLOCATOR_MATCHING_H
#define SOPA_ALLOCATOR_MATCHING_H

#include "demands.h"
#include "layout.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace sopa::allocator {

/* The slots of a batch that a pair of hosts has got: one cell in each. */
struct Match {
	uint32_t source, destination;
	uint64_t slots;
};

class Matching {
public:
	static std::unique_ptr<Matching> make(const Layout &layout, Order order, unsigned batch);
	virtual ~Matching() = default;

	/* Go on with other capacities. */
	virtual void follow(const Fabric &fabric) = 0;

	/* Leave cells of a host's link free in the next batch, in place of what was said before. */
	virtual void reserve(uint32_t host, unsigned sending, unsigned receiving) = 0;

	/* Allocate the slots of the next batch, and take the cells off the demands. Valid until the next call. */
	virtual const std::vector<Match> &match(Demands &demands) = 0;
};

} // namespace sopa::allocator

#endif
