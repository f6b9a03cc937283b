// The Clos fabric of topologies/structure.py: positions of hosts, and a number for each link and direction. Absent links have
// numbers, too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sopa
{

using Host = std::uint32_t; // ordered by address: pod, rack, position in the rack
using LinkId = std::uint32_t;

// The numbers of a fabric's switches and hosts, as in topologies/identity.py. Without core switches it has one pod.
struct Shape
{
    std::uint32_t pods = 4, edges = 2, aggregations = 2, cores = 4, hosts = 2;
};

struct Clos
{
    // Throws std::invalid_argument if a number is out of range.
    explicit Clos(const Shape& shape);

    std::uint32_t RackOf(Host host) const { return host / hosts_per_edge; }
    std::uint32_t PodOfRack(std::uint32_t rack) const { return rack / edges; }
    std::uint32_t PodOf(Host host) const { return PodOfRack(RackOf(host)); }
    std::uint32_t EdgeOf(Host host) const { return RackOf(host) % edges; } // index in the pod
    std::uint32_t PlaceOf(Host host) const { return host % hosts_per_edge; }

    // 10.pod.edge.number, numbers from 2
    std::uint32_t AddressOf(Host host) const
    {
        return 10u << 24 | PodOf(host) << 16 | EdgeOf(host) << 8 | (PlaceOf(host) + 2);
    }

    Host HostOf(std::uint32_t address) const
    {
        return ((address >> 16 & 255) * edges + (address >> 8 & 255)) * hosts_per_edge + (address & 255) - 2;
    }

    LinkId FromHost(Host host) const { return host; }
    LinkId FromEdge(std::uint32_t rack, std::uint32_t up1) const { return first_from_edge + rack * aggregations + up1; }
    LinkId ToHost(Host host) const { return first_to_host + host; }

    LinkId FromAggregation(std::uint32_t pod, std::uint32_t up1, std::uint32_t up2) const
    {
        return first_from_aggregation + (pod * aggregations + up1) * cores_of_group + up2;
    }

    LinkId ToEdge(std::uint32_t pod, std::uint32_t up1, std::uint32_t edge) const
    {
        return first_to_edge + (pod * aggregations + up1) * edges + edge;
    }

    LinkId ToPod(std::uint32_t up1, std::uint32_t up2, std::uint32_t pod) const
    {
        return first_to_pod + (up1 * cores_of_group + up2) * pods + pod;
    }

    // The level of the lower end of a link: 0 for a host, 1 for an edge switch, 2 for an aggregation switch.
    int LevelOf(LinkId id) const;

    // The port where a link begins (e0_0-eth3), and the node at its other end.
    struct End
    {
        std::string port, peer;
    };
    End EndOf(LinkId id) const;

    // h0_0_2
    std::string NameOf(Host host) const;

    // Both directions of a link (h0_0_2-e0_0, e0_0-a0_0, a0_0-c0_1), or every link of an aggregation or core switch (a0_0). Empty
    // for any other name.
    std::vector<LinkId> LinksOf(const std::string& name) const;

    std::uint32_t pods, edges, aggregations, cores_of_group, hosts_per_edge;
    std::uint32_t racks, hosts; // in all
    LinkId first_from_edge, first_to_host, first_from_aggregation, first_to_edge, first_to_pod, links;
};

} // namespace sopa
