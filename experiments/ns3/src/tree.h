// The fat-tree of topologies/structure.py: positions of hosts, and a number for each link and direction.
#pragma once

#include <cstdint>
#include <string>

namespace sopa
{

using Host = std::uint32_t; // ordered by address: pod, rack, position in the rack
using LinkId = std::uint32_t;

struct Tree
{
    explicit Tree(std::uint32_t ports)
        : k(ports),
          half(ports / 2),
          hosts(ports * ports * ports / 4),
          racks(ports * ports / 2),
          first_from_edge(hosts),
          first_to_host(first_from_edge + racks * half),
          first_from_aggregation(first_to_host + hosts),
          first_to_edge(first_from_aggregation + racks * half),
          first_to_pod(first_to_edge + racks * half),
          links(first_to_pod + half * half * ports)
    {
    }

    std::uint32_t RackOf(Host host) const { return host / half; }
    std::uint32_t PodOf(Host host) const { return host / (half * half); }
    std::uint32_t PlaceOf(Host host) const { return host % half; }

    // 10.pod.edge.number, numbers from 2
    std::uint32_t AddressOf(Host host) const
    {
        return 10u << 24 | PodOf(host) << 16 | (RackOf(host) % half) << 8 | (PlaceOf(host) + 2);
    }

    Host HostOf(std::uint32_t address) const
    {
        return ((address >> 16 & 255) * half + (address >> 8 & 255)) * half + (address & 255) - 2;
    }

    LinkId FromHost(Host host) const { return host; }
    LinkId FromEdge(std::uint32_t rack, std::uint32_t up1) const { return first_from_edge + rack * half + up1; }
    LinkId ToHost(Host host) const { return first_to_host + host; }

    LinkId FromAggregation(std::uint32_t pod, std::uint32_t up1, std::uint32_t up2) const
    {
        return first_from_aggregation + (pod * half + up1) * half + up2;
    }

    LinkId ToEdge(std::uint32_t pod, std::uint32_t up1, std::uint32_t edge) const
    {
        return first_to_edge + (pod * half + up1) * half + edge;
    }

    LinkId ToPod(std::uint32_t up1, std::uint32_t up2, std::uint32_t pod) const
    {
        return first_to_pod + (up1 * half + up2) * k + pod;
    }

    // The port where a link begins (e0_0-eth3), and the node at its other end.
    struct End
    {
        std::string port, peer;
    };
    End EndOf(LinkId id) const;

    // h0_0_2
    std::string NameOf(Host host) const;

    std::uint32_t k, half, hosts, racks;
    LinkId first_from_edge, first_to_host, first_from_aggregation, first_to_edge, first_to_pod, links;
};

} // namespace sopa
