/*
 * Paths by next fit with a genetic algorithm (algorithm 3 and section 4.2 of the paper). Racks in an order, at first of decreasing demand,
 * load their cells onto aggregation switches and these onto core switches: each stays with one until it has no room for a cell, and
 * never returns. The order is a chromosome, of which the cells that find a path are the fitness.
 */
#ifndef SOPA_ALLOCATOR_NEXT_FIT_H
#define SOPA_ALLOCATOR_NEXT_FIT_H

#include "paths.h"

namespace sopa::allocator {

std::unique_ptr<PathFinder> make_next_fit(const Layout &layout, const Fabric &fabric, uint64_t seed);

} // namespace sopa::allocator

#endif
