#include "paths.h"

#include "coloured_paths.h"
#include "next_fit.h"

namespace sopa::allocator {

std::unique_ptr<PathFinder> PathFinder::make(const Layout &layout, const Fabric &fabric, Paths paths, uint64_t seed)
{
	return paths == Paths::colouring ? make_coloured_paths(layout, fabric, seed) : make_next_fit(layout, fabric, seed);
}

} // namespace sopa::allocator
