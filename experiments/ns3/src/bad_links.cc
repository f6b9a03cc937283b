#include "bad_links.h"

#include <stdexcept>

namespace sopa
{

namespace
{

// The draw of that number from the seed's sequence: splitmix64, as experiments/core/draws.py
std::uint64_t
Drawn(std::uint64_t seed, std::uint64_t number)
{
    std::uint64_t z = seed + (number + 1) * 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

} // namespace

bool
Fault::Takes()
{
    if (!threshold)
    {
        return false;
    }
    const bool takes = Drawn(seed, packets++) >> 32 < threshold;
    hit += takes;
    return takes;
}

LinkId
DirectionOf(const Clos& tree, const std::string& name, const std::string& towards)
{
    for (const LinkId id : tree.LinksOf(name))
    {
        if (tree.LevelOf(id) > 0 && name.find('-') != std::string::npos && tree.EndOf(id).peer == towards)
        {
            return id;
        }
    }
    throw std::invalid_argument("no link between switches has the name " + name + " and leads to " + towards);
}

} // namespace sopa
