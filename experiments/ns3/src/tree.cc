#include "tree.h"

namespace sopa
{

namespace
{

std::string
Switch(char level, std::uint32_t pod, std::uint32_t index)
{
    return std::string(1, level) + std::to_string(pod) + "_" + std::to_string(index);
}

} // namespace

std::string
Tree::NameOf(Host host) const
{
    return Switch('h', PodOf(host), RackOf(host) % half) + "_" + std::to_string(PlaceOf(host) + 2);
}

Tree::End
Tree::EndOf(LinkId id) const
{
    const auto port = [](const std::string& name, std::uint32_t number) { return name + "-eth" + std::to_string(number); };
    if (id < first_from_edge)
    {
        return {port(NameOf(id), 0), Switch('e', PodOf(id), RackOf(id) % half)};
    }
    if (id < first_to_host)
    {
        id -= first_from_edge;
        const auto pod = id / half / half, index = id / half % half, up1 = id % half;
        return {port(Switch('e', pod, index), half + 1 + up1), Switch('a', pod, up1)};
    }
    if (id < first_from_aggregation)
    {
        const Host host = id - first_to_host;
        return {port(Switch('e', PodOf(host), RackOf(host) % half), PlaceOf(host) + 1), NameOf(host)};
    }
    if (id < first_to_edge)
    {
        id -= first_from_aggregation;
        const auto pod = id / half / half, up1 = id / half % half, up2 = id % half;
        return {port(Switch('a', pod, up1), half + 1 + up2), Switch('c', up1, up2)};
    }
    if (id < first_to_pod)
    {
        id -= first_to_edge;
        const auto pod = id / half / half, up1 = id / half % half, edge = id % half;
        return {port(Switch('a', pod, up1), edge + 1), Switch('e', pod, edge)};
    }
    id -= first_to_pod;
    const auto up1 = id / k / half, up2 = id / k % half, pod = id % k;
    return {port(Switch('c', up1, up2), pod + 1), Switch('a', pod, up1)};
}

} // namespace sopa
