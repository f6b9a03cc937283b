// Path selectors of which every switch on the way up follows the load of its own uplinks.
#pragma once

#include "path_selector.h"

#include "ns3/simulator.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

namespace sopa
{

// LetFlow (Vanini et al., NSDI 2017): after a gap in a flow a switch takes any uplink, by chance. Flowlets are shorter where a path is
// congested, so less goes there.
class LetFlow : public SwitchSelector
{
  public:
    explicit LetFlow(const Settings& settings)
        : SwitchSelector(settings),
          m_gap(settings.flowlet_gap)
    {
    }

  protected:
    std::size_t Next(InFlightPacket& in_flight, std::uint32_t at, std::size_t count) override
    {
        auto& flowlets = m_flowlets[in_flight.flow];
        flowlets.resize(1 + m_tree.aggregations);
        Flowlet& its = flowlets[at];
        const auto& ports = UplinksOf(in_flight, at);
        const std::int64_t now = ns3::Simulator::Now().GetTimeStep();
        auto found = std::find(ports.begin(), ports.end(), its.port);
        if (found == ports.end() || now - its.seen > m_gap)
        {
            found = ports.begin() + Random(static_cast<std::uint32_t>(count));
        }
        its = {now, *found};
        return found - ports.begin();
    }

  private:
    struct Flowlet
    {
        std::int64_t seen = 0; // ns
        std::uint8_t port = 0xff;
    };

    const std::int64_t m_gap; // ns
    std::unordered_map<const Flow*, std::vector<Flowlet>> m_flowlets; // by switch on the way up
};

// DRILL(d, m) (Ghorbani et al., SIGCOMM 2017): for each packet a switch takes the shortest of d queues, by chance, and of the m that
// were the shortest at its last choice. The receiver resequences.
class Drill : public SwitchSelector
{
  public:
    explicit Drill(const Settings& settings)
        : Drill(settings, settings.drill_samples, settings.drill_memory)
    {
    }

    std::int64_t resequencing() const override { return m_resequencing; }
    void Start(Fabric& fabric) override { m_queues = &fabric; }

  protected:
    Drill(const Settings& settings, std::uint32_t samples, std::uint32_t memory)
        : SwitchSelector(settings),
          m_samples(samples),
          m_memory(memory),
          m_resequencing(settings.resequencing),
          m_remembered(Switches())
    {
    }

    std::size_t Next(InFlightPacket& in_flight, std::uint32_t at, std::size_t count) override
    {
        const auto& ports = UplinksOf(in_flight, at);
        const std::size_t samples = std::min<std::size_t>(m_samples, count);
        m_order.resize(count);
        std::iota(m_order.begin(), m_order.end(), 0);
        m_seen.clear();
        for (std::size_t one = 0; one < samples; ++one)
        {
            std::swap(m_order[one], m_order[one + Random(static_cast<std::uint32_t>(count - one))]);
            m_seen.emplace_back(LengthOf(in_flight, at, ports[m_order[one]]), m_order[one]);
        }
        auto& remembered = m_remembered[SwitchOf(in_flight, at)];
        for (const std::uint8_t port : remembered)
        {
            const std::size_t index = std::find(ports.begin(), ports.end(), port) - ports.begin();
            if (index < count && std::find(m_order.begin(), m_order.begin() + samples, index) == m_order.begin() + samples)
            {
                m_seen.emplace_back(LengthOf(in_flight, at, port), index);
            }
        }
        // of equal ones the first: any, by chance
        std::stable_sort(m_seen.begin(), m_seen.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
        remembered.clear();
        for (std::size_t one = 0; one < std::min<std::size_t>(m_memory, m_seen.size()); ++one)
        {
            remembered.push_back(ports[m_seen[one].second]);
        }
        return m_seen.front().second;
    }

  private:
    std::uint32_t LengthOf(const InFlightPacket& in_flight, std::uint32_t at, std::uint8_t port) const
    {
        const std::uint32_t rack = m_tree.RackOf(in_flight.source);
        Link& link = m_queues->link(at ? m_tree.FromAggregation(m_tree.PodOfRack(rack), at - 1, port) : m_tree.FromEdge(rack, port));
        return link.Length(ns3::Simulator::Now().GetTimeStep());
    }

    const std::uint32_t m_samples, m_memory;
    const std::int64_t m_resequencing;
    Fabric* m_queues = nullptr;
    std::vector<std::vector<std::uint8_t>> m_remembered; // ports, by switch
    // Of one choice, here to be allocated once: indices, those of the samples first, and lengths with their indices.
    std::vector<std::size_t> m_order;
    std::vector<std::pair<std::uint32_t, std::size_t>> m_seen;
};

// Adaptive routing by queue length, as switches of InfiniBand and of Ethernet for RDMA have it: the shortest of all queues.
class Adaptive : public Drill
{
  public:
    explicit Adaptive(const Settings& settings)
        : Drill(settings, UINT32_MAX, 0)
    {
    }
};

} // namespace sopa
