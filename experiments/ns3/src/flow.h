// One direction of a TCP connection, as its sending host and the switches know it.
#pragma once

#include "tree.h"

#include <cstdint>
#include <vector>

namespace sopa
{

struct Reached;

struct Flow
{
    Host source, destination;
    std::uint64_t hash;                     // of addresses and ports
    Reached* transfer = nullptr;            // whose data it carries; none for acknowledgements
    std::uint32_t next = 0;                 // the next path's number, where somebody goes round
    std::vector<std::uint32_t> at_switches; // counters of the switches on the way up, where those go round or count
    std::uint64_t counted = 0;              // bytes at the edge switch, where a controller asks for them
    bool placed = false;                    // a controller has chosen a path
    std::uint8_t placed_up1 = 0, placed_up2 = 0;
};

} // namespace sopa
