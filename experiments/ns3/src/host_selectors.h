// Path selectors of which the sending host chooses the path of each packet.
#pragma once

#include "path_selector.h"

#include <set>
#include <tuple>

namespace sopa
{

// The sender labels every packet of a flow with the next candidate path (SOPA paper, sections 3.3 and 3.4). For the flows of a host
// that may not, the edge switch chooses by a hash, in the same proportions.
class Sopa : public PathSelector
{
  public:
    explicit Sopa(const Settings& settings)
        : PathSelector(settings),
          m_unlabelled(settings.no_label.begin(), settings.no_label.end())
    {
    }

    std::uint32_t overhead() const override { return 4; }
    bool labels(const Flow& flow) const override { return m_unlabelled.empty() || !m_unlabelled.count(flow.source); }

    void AtHost(Flow& flow, std::uint32_t, std::uint8_t& up1, std::uint8_t& up2) override
    {
        if (labels(flow))
        {
            RoundRobinAtHost(flow, up1, up2);
        }
    }

    void AtEdge(InFlightPacket& in_flight, Fabric&) override
    {
        if (in_flight.up1 == 0xff && !labels(*in_flight.flow))
        {
            const auto& all = PathSetOf(*in_flight.flow).all;
            if (!all.empty())
            {
                std::tie(in_flight.up1, in_flight.up2) = all[Mix(in_flight.flow->hash, 1) % all.size()];
            }
        }
    }

  private:
    const std::set<Host> m_unlabelled;
};

// Flowcells (He et al., Presto, SIGCOMM 2015): the sender takes the next path after each 64 KB of a flow.
class Flowcell : public Sopa
{
  public:
    explicit Flowcell(const Settings& settings)
        : Sopa(settings),
          m_cell(settings.flowcell)
    {
    }

    void AtHost(Flow& flow, std::uint32_t bytes, std::uint8_t& up1, std::uint8_t& up2) override
    {
        if (labels(flow))
        {
            CellAtHost(flow, bytes, m_cell, up1, up2);
        }
    }

  private:
    const std::uint32_t m_cell;
};

// Round-robin over all paths without a label's bytes, and a receiver that resequences: "PerPacket" of the MCS paper, section VI.A.
class PerPacket : public PathSelector
{
  public:
    explicit PerPacket(const Settings& settings)
        : PathSelector(settings),
          m_resequencing(settings.resequencing)
    {
    }

    std::int64_t resequencing() const override { return m_resequencing; }

    void AtHost(Flow& flow, std::uint32_t, std::uint8_t& up1, std::uint8_t& up2) override
    {
        RoundRobinAtHost(flow, up1, up2);
    }

  private:
    const std::int64_t m_resequencing;
};

// Presto as a whole: a path is in the Ethernet header, a flowcell's number in a field that TCP does not use, and the receiver puts
// flowcells in order.
class Presto : public PerPacket
{
  public:
    explicit Presto(const Settings& settings)
        : PerPacket(settings),
          m_cell(settings.flowcell)
    {
    }

    bool has_flowcells() const override { return true; }

    void AtHost(Flow& flow, std::uint32_t bytes, std::uint8_t& up1, std::uint8_t& up2) override
    {
        flow.channel = static_cast<std::uint16_t>(CellAtHost(flow, bytes, m_cell, up1, up2));
    }

  private:
    const std::uint32_t m_cell;
};

// Digit-reversal bouncing (Cao et al., CoNEXT 2013): the sender selects the core switch of each packet round-robin in
// digit-reversed order, which equals the interleaved order; IP in IP carries the packet there; the receiver resequences.
class Drb : public PerPacket
{
  public:
    using PerPacket::PerPacket;

    std::uint32_t overhead() const override { return 20; }
    std::uint32_t outer() const override { return 20; }
    std::uint32_t bytes_removed_at_top() const override { return 20; }
};

// MCS with candidate paths as channels: a label for each packet, ports unchanged. A flow's channels are spread evenly over its path
// set, from a start that follows from its hash.
class ChannelPath : public Sopa
{
  public:
    explicit ChannelPath(const Settings& settings)
        : Sopa(settings),
          m_channels(settings.channels)
    {
    }

    std::uint32_t overhead() const override { return Sopa::overhead() + McoBytes(m_channels); }

    void AtHost(Flow& flow, std::uint32_t, std::uint8_t& up1, std::uint8_t& up2) override
    {
        const auto& all = PathSetOf(flow).all;
        if (!all.empty() && labels(flow))
        {
            const std::size_t start = (Mix(flow.hash, 1) >> 32) * all.size() >> 32;
            std::tie(up1, up2) = all[(start + flow.channel * all.size() / m_channels) % all.size()];
        }
    }

  private:
    const std::uint32_t m_channels;
};

} // namespace sopa
