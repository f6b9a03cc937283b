/*
 * Paths by bin packing (algorithm 3 and section 4.2 of the paper). Racks by decreasing demand load their cells onto aggregation switches,
 * and these onto core switches. By first fit, as algorithm 3 prints it, a cell goes to the first switch with room. By next fit, which
 * section 4.2 names, a rack stays with a switch until that has no room for a cell, and never returns. With the genetic algorithm the order of
 * the racks is a chromosome, of which the cells that find a path are the fitness.
 */
#ifndef SOPA_ALLOCATOR_PACKING_H
#define SOPA_ALLOCATOR_PACKING_H

#include "paths.h"

namespace sopa::allocator {

/* Any paths but those of colouring. */
std::unique_ptr<PathFinder> make_packing(const Layout &layout, const Fabric &fabric, Paths paths, uint64_t seed);

} // namespace sopa::allocator

#endif
