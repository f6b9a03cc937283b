#include "paths.h"

#include "coloured_paths.h"
#include "packing.h"

namespace sopa::allocator {

std::unique_ptr<PathFinder> PathFinder::make(const Layout &layout, const Fabric &fabric, Paths paths, uint64_t seed)
{
	return paths == Paths::colouring ? make_coloured_paths(layout, fabric, seed) : make_packing(layout, fabric, paths, seed);
}

} // namespace sopa::allocator
