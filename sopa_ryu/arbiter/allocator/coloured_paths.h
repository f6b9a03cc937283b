/*
 * Paths without conflict: the aggregation switch of a cell is a colour of an edge between two racks, its core switch one of an edge between
 * two pods, among the cells with the same index of the aggregation switch. What that leaves without a path, since links are absent or
 * uneven, takes the first one that has room.
 */
#ifndef SOPA_ALLOCATOR_COLOURED_PATHS_H
#define SOPA_ALLOCATOR_COLOURED_PATHS_H

#include "paths.h"

namespace sopa::allocator {

std::unique_ptr<PathFinder> make_coloured_paths(const Layout &layout, const Fabric &fabric, uint64_t seed);

} // namespace sopa::allocator

#endif
