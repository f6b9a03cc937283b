// Grey and corrupting links: which packets one direction loses, or flips a bit in, by a seed and the packet's number.
#pragma once

#include "clos.h"

#include <map>
#include <string>

namespace sopa
{

// A fault of one kind, and the truth of what it did.
struct Fault
{
    // Return whether the fault takes the next packet.
    bool Takes();

    std::uint64_t threshold = 0; // of the upper 32 bits of a draw: probability times 2^32
    std::uint64_t seed = 0;
    std::uint64_t packets = 0, hit = 0;
};

struct BadLink
{
    std::string name, towards;
    std::int64_t at = 0; // ns
    Fault loss, corruption;
    std::uint64_t rate = 0; // bit/s; 0: as it is
};

// Return the number of the direction of a link that leads to a node. Throws std::invalid_argument if there is none.
LinkId DirectionOf(const Clos& tree, const std::string& name, const std::string& towards);

} // namespace sopa
