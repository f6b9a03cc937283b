#include "avoided.h"

namespace sopa
{

bool
Section::Covers(const Way& way, std::uint32_t edges) const
{
    return up1 == way.up.first && (up2 < 0 || up2 == way.up.second) && (pod < 0 || pod == static_cast<int>(way.rack / edges)) &&
           (edge < 0 || edge == static_cast<int>(way.rack % edges));
}

bool
Section::Includes(const Section& other) const
{
    const auto one = [](int mine, int its) { return mine < 0 || mine == its; };
    return up1 == other.up1 && one(up2, other.up2) && one(pod, other.pod) && one(edge, other.edge);
}

std::vector<Section>
SectionsOf(const Way& way, std::uint32_t edges)
{
    const int pod = way.rack / edges, edge = way.rack % edges, up1 = way.up.first, up2 = way.up.second;
    if (way.up.second == 0xff)
    {
        return {Section{up1}, Section{up1, -1, pod, edge}};
    }
    return {Section{up1}, Section{up1, up2}, Section{up1, up2, pod}, Section{up1, -1, pod, edge}, Section{up1, up2, pod, edge}};
}

} // namespace sopa
