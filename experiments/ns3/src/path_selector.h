// Path selection: one class per scheme.
#pragma once

#include "fabric.h"
#include "mcs.h"

#include <map>
#include <memory>
#include <random>
#include <utility>

namespace sopa
{

// Candidate paths from one rack to another, without those that contain a failed or absent link.
struct PathSet
{
    // In round-robin order: the aggregation switch changes fastest, unless the settings say otherwise. With an order of the settings
    // each path occurs in proportion to its weight.
    std::vector<std::pair<std::uint8_t, std::uint8_t>> all;
    std::vector<std::uint8_t> first;                        // distinct up1
    std::vector<std::vector<std::uint8_t>> second;          // for each up1, its up2
};

// Return a hash of the flow, different for each `which`.
inline std::uint64_t
Mix(std::uint64_t hash, std::uint64_t which)
{
    std::uint64_t mixed = hash + 0x9e3779b97f4a7c15ull * which;
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9ull;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebull;
    return mixed ^ mixed >> 31;
}

class PathSelector
{
  public:
    explicit PathSelector(const Settings& settings);
    virtual ~PathSelector() = default;

    // Bytes that the scheme takes from the segments of every packet.
    virtual std::uint32_t overhead() const { return 0; }

    // Those of them that are not in the packet itself, as a label is, but around it.
    virtual std::uint32_t outer() const { return 0; }

    // True if the sending host writes a label into the packets of a flow.
    virtual bool labels(const Flow&) const { return false; }

    // Bytes that the switch at the top of a path between pods removes from each packet, or in a fabric of one pod a spine.
    virtual std::uint32_t bytes_removed_at_top() const { return 0; }

    // Maximum time in ns that the receiving host delays a packet while an earlier one is missing; 0: no resequencing.
    virtual std::int64_t resequencing() const { return 0; }

    // True if the channel of a packet is its flowcell, within which all packets take one path.
    virtual bool has_flowcells() const { return false; }

    // Called when the fabric and all transfers are set up, before the first packet.
    virtual void Start(Fabric&) {}

    // Initialize the state of a new flow: its first path.
    virtual void Begin(Flow& flow);

    // Choose the path of segments with so many bytes in all.
    virtual void AtHost(Flow&, std::uint32_t, std::uint8_t&, std::uint8_t&) {}
    virtual void AtEdge(InFlightPacket&, Fabric&) {}
    virtual void AtAggregation(InFlightPacket&, Fabric&) {}

    // True if the scheme has a part at the edge switch of the destination, too.
    virtual bool is_at_last_switch() const { return false; }

    // Return whether that switch keeps the packet.
    virtual bool AtLastSwitch(InFlightPacket&, Fabric&) { return false; }

    // Return the candidate paths of a flow, without failed and absent links.
    const PathSet& CandidatesOf(Flow& flow) { return PathSetOf(flow); }

    // Exclude failed and absent links from path selection from now on. Senders and switches learn of them at the same time.
    void Learn(Fabric& fabric);

    // Return a number that is another one when there is something to exclude that was not before.
    std::uint32_t version() const { return m_version; }

  protected:
    const PathSet& PathSetOf(Flow& flow) { return flow.version == m_version && flow.paths ? *flow.paths : Find(flow); }
    // Take the next path of a flow.
    void RoundRobinAtHost(Flow& flow, std::uint8_t& up1, std::uint8_t& up2);
    // Take the next path of a flow after each `cell` bytes. Return the number of the cell.
    std::uint64_t CellAtHost(Flow& flow, std::uint32_t bytes, std::uint32_t cell, std::uint8_t& up1, std::uint8_t& up2);
    std::uint32_t Random(std::uint32_t below) { return static_cast<std::uint32_t>(m_random() % below); }

    const Clos m_tree;

  private:
    const PathSet& Find(Flow& flow);
    void Complete(PathSet& paths) const;
    const PathOrder* OrderOf(std::uint32_t from, std::uint32_t to) const;

    std::mt19937_64 m_random;
    std::string m_first_path;
    PathSet m_within_rack, m_within_pod, m_between_pods;
    const Settings& m_settings;
    Fabric* m_fabric = nullptr; // set by what distinguishes the pairs of racks: a failure, an absent link, an order
    std::uint32_t m_version = 0;
    std::map<std::pair<std::uint32_t, std::uint32_t>, PathSet> m_remaining; // by source and destination rack
};

// Each switch on the way up selects one of its uplinks.
class SwitchSelector : public PathSelector
{
  public:
    using PathSelector::PathSelector;
    void AtEdge(InFlightPacket& in_flight, Fabric& fabric) override;
    void AtAggregation(InFlightPacket& in_flight, Fabric& fabric) override;

  protected:
    // Return the index of one of `count` uplinks; `at` is 0 at the edge switch and 1 + up1 at an aggregation switch.
    virtual std::size_t Next(InFlightPacket& in_flight, std::uint32_t at, std::size_t count) = 0;

    // Return the uplinks of which the one at the index is taken.
    const std::vector<std::uint8_t>& UplinksOf(InFlightPacket& in_flight, std::uint32_t at)
    {
        const PathSet& paths = PathSetOf(*in_flight.flow);
        return at ? paths.second[at - 1] : paths.first;
    }

    // Number all switches that select uplinks.
    std::size_t SwitchOf(const InFlightPacket& in_flight, std::uint32_t at) const
    {
        const std::uint32_t rack = m_tree.RackOf(in_flight.source);
        return at ? m_tree.racks + m_tree.PodOfRack(rack) * m_tree.aggregations + at - 1 : rack;
    }

    std::size_t Switches() const { return std::size_t{m_tree.racks} + m_tree.pods * m_tree.aggregations; }
};

// One path per flow (ECMP): every switch uses a hash function of its own, or all share one.
class Hash : public SwitchSelector
{
  public:
    explicit Hash(const Settings& settings);

  protected:
    std::size_t Next(InFlightPacket& in_flight, std::uint32_t at, std::size_t count) override;

    // Return the hash of a packet's addresses and ports.
    virtual std::uint64_t HashOf(const InFlightPacket& in_flight) const { return in_flight.flow->hash; }

  private:
    bool m_same;
};

// ECMP with source ports that change: a packet in channel c has one that is lower by c, and so another path (MCS, PLB, REPS).
class ChannelHash : public Hash
{
  public:
    explicit ChannelHash(const Settings& settings)
        : Hash(settings),
          m_overhead(McoBytes(settings.channels))
    {
    }

    std::uint32_t overhead() const override { return m_overhead; }

  protected:
    std::uint64_t HashOf(const InFlightPacket& in_flight) const override
    {
        return in_flight.flow->hash - (std::uint64_t(in_flight.channel) << 16) * HASH_FACTOR;
    }

  private:
    const std::uint32_t m_overhead;
};

// The hash for REPS, whose receiver resequences.
class RecycledHash : public ChannelHash
{
  public:
    explicit RecycledHash(const Settings& settings)
        : ChannelHash(settings),
          m_resequencing(settings.resequencing)
    {
    }

    std::int64_t resequencing() const override { return m_resequencing; }

  private:
    const std::int64_t m_resequencing;
};

// Throws std::invalid_argument if settings.scheme is unknown.
std::unique_ptr<PathSelector> MakePathSelector(const Settings& settings);

} // namespace sopa
