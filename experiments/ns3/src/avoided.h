// Candidate paths of a host by the links that they share: the sections of sopa_ryu/agent/paths/avoided.py.
#pragma once

#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

namespace sopa
{

using Label = std::pair<std::uint8_t, std::uint8_t>; // up1 and up2; 0xff where not taken

// A candidate path to a rack.
struct Way
{
    std::uint32_t rack = 0;
    Label up;
    bool operator<(const Way& other) const { return std::tie(rack, up) < std::tie(other.rack, other.up); }
};

// The paths that share a link on the way out of one host; -1 stands for any.
struct Section
{
    int up1 = 0, up2 = -1, pod = -1, edge = -1;
    bool Covers(const Way& way, std::uint32_t edges) const;
    bool Includes(const Section& other) const;
    bool operator<(const Section& other) const
    {
        return std::tie(up1, up2, pod, edge) < std::tie(other.up1, other.up2, other.pod, other.edge);
    }
    bool operator==(const Section& other) const
    {
        return std::tie(up1, up2, pod, edge) == std::tie(other.up1, other.up2, other.pod, other.edge);
    }
};

// Return the sections that a path crosses, the widest first; the last is that path alone.
std::vector<Section> SectionsOf(const Way& way, std::uint32_t edges);

} // namespace sopa
