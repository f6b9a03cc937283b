#include "clos.h"

#include <cstdio>
#include <stdexcept>

namespace sopa
{

namespace
{

constexpr std::uint32_t MAX_UPLINKS = 254; // indices of uplinks are one byte, and 255 is that of a hop that is not taken

std::string
Switch(char level, std::uint32_t pod, std::uint32_t index)
{
    return std::string(1, level) + std::to_string(pod) + "_" + std::to_string(index);
}

void
Check(const std::string& name, std::uint32_t value, std::uint32_t most)
{
    if (value < 1 || value > most)
    {
        throw std::invalid_argument(name + " of a fabric must be from 1 to " + std::to_string(most) + ", not " +
                                    std::to_string(value));
    }
}

const Shape&
Checked(const Shape& shape)
{
    Check("pods", shape.pods, 255);
    Check("edges", shape.edges, 255);
    Check("aggregations", shape.aggregations, MAX_UPLINKS);
    Check("hosts", shape.hosts, 252);
    if (shape.cores % shape.aggregations || shape.cores > MAX_UPLINKS * shape.aggregations || (!shape.cores && shape.pods > 1))
    {
        throw std::invalid_argument("cores of a fabric must be a multiple of aggregations, and 0 with one pod only, not " +
                                    std::to_string(shape.cores));
    }
    return shape;
}

} // namespace

Clos::Clos(const Shape& shape)
    : pods(Checked(shape).pods),
      edges(shape.edges),
      aggregations(shape.aggregations),
      cores_of_group(shape.cores / shape.aggregations),
      hosts_per_edge(shape.hosts),
      racks(pods * edges),
      hosts(racks * hosts_per_edge),
      first_from_edge(hosts),
      first_to_host(first_from_edge + racks * aggregations),
      first_from_aggregation(first_to_host + hosts),
      first_to_edge(first_from_aggregation + pods * shape.cores),
      first_to_pod(first_to_edge + racks * aggregations),
      links(first_to_pod + shape.cores * pods)
{
}

int
Clos::LevelOf(LinkId id) const
{
    if (id < first_from_edge || (id >= first_to_host && id < first_from_aggregation))
    {
        return 0;
    }
    return id < first_to_host || (id >= first_to_edge && id < first_to_pod) ? 1 : 2;
}

std::string
Clos::NameOf(Host host) const
{
    return Switch('h', PodOf(host), EdgeOf(host)) + "_" + std::to_string(PlaceOf(host) + 2);
}

Clos::End
Clos::EndOf(LinkId id) const
{
    const auto port = [](const std::string& name, std::uint32_t number) { return name + "-eth" + std::to_string(number); };
    if (id < first_from_edge)
    {
        return {port(NameOf(id), 0), Switch('e', PodOf(id), EdgeOf(id))};
    }
    if (id < first_to_host)
    {
        id -= first_from_edge;
        const auto pod = id / aggregations / edges, index = id / aggregations % edges, up1 = id % aggregations;
        return {port(Switch('e', pod, index), hosts_per_edge + 1 + up1), Switch('a', pod, up1)};
    }
    if (id < first_from_aggregation)
    {
        const Host host = id - first_to_host;
        return {port(Switch('e', PodOf(host), EdgeOf(host)), PlaceOf(host) + 1), NameOf(host)};
    }
    if (id < first_to_edge)
    {
        id -= first_from_aggregation;
        const auto pod = id / cores_of_group / aggregations, up1 = id / cores_of_group % aggregations, up2 = id % cores_of_group;
        return {port(Switch('a', pod, up1), edges + 1 + up2), Switch('c', up1, up2)};
    }
    if (id < first_to_pod)
    {
        id -= first_to_edge;
        const auto pod = id / edges / aggregations, up1 = id / edges % aggregations, edge = id % edges;
        return {port(Switch('a', pod, up1), edge + 1), Switch('e', pod, edge)};
    }
    id -= first_to_pod;
    const auto up1 = id / pods / cores_of_group, up2 = id / pods % cores_of_group, pod = id % pods;
    return {port(Switch('c', up1, up2), pod + 1), Switch('a', pod, up1)};
}

std::vector<LinkId>
Clos::LinksOf(const std::string& name) const
{
    std::uint32_t pod = 0, index = 0, up = 0, number = 0;
    const char* text = name.c_str();
    std::vector<LinkId> found;
    // The numbers that are read are printed again and compared, so that no other spelling of a name is accepted.
    if (std::sscanf(text, "h%u_%u_%u-", &pod, &index, &number) == 3 && pod < pods && index < edges && number >= 2 &&
        number - 2 < hosts_per_edge)
    {
        const Host host = (pod * edges + index) * hosts_per_edge + number - 2;
        if (name == NameOf(host) + "-" + Switch('e', pod, index))
        {
            found = {FromHost(host), ToHost(host)};
        }
    }
    else if (std::sscanf(text, "e%u_%u-a%u_%u", &pod, &index, &number, &up) == 4 && pod < pods && index < edges &&
             up < aggregations)
    {
        if (name == Switch('e', pod, index) + "-" + Switch('a', pod, up))
        {
            found = {FromEdge(pod * edges + index, up), ToEdge(pod, up, index)};
        }
    }
    else if (std::sscanf(text, "a%u_%u-c%u_%u", &pod, &index, &number, &up) == 4 && pod < pods && index < aggregations &&
             up < cores_of_group)
    {
        if (name == Switch('a', pod, index) + "-" + Switch('c', index, up))
        {
            found = {FromAggregation(pod, index, up), ToPod(index, up, pod)};
        }
    }
    else if (std::sscanf(text, "a%u_%u", &pod, &index) == 2 && pod < pods && index < aggregations && name == Switch('a', pod, index))
    {
        for (std::uint32_t edge = 0; edge < edges; ++edge)
        {
            found.insert(found.end(), {FromEdge(pod * edges + edge, index), ToEdge(pod, index, edge)});
        }
        for (std::uint32_t core = 0; core < cores_of_group; ++core)
        {
            found.insert(found.end(), {FromAggregation(pod, index, core), ToPod(index, core, pod)});
        }
    }
    else if (std::sscanf(text, "c%u_%u", &index, &up) == 2 && index < aggregations && up < cores_of_group &&
             name == Switch('c', index, up))
    {
        for (pod = 0; pod < pods; ++pod)
        {
            found.insert(found.end(), {FromAggregation(pod, index, up), ToPod(index, up, pod)});
        }
    }
    return found;
}

} // namespace sopa
