#include "path_selector.h"

#include "conweave.h"
#include "flowhash.h" // of the agent
#include "hedera.h"
#include "host_selectors.h"
#include "load_selectors.h"

#include "ns3/simulator.h"

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <tuple>

namespace sopa
{

namespace
{

constexpr std::uint8_t TCP = 6;

// Let paths occur in an order of the settings. Throws std::invalid_argument if it has others than the remaining paths.
void
Reorder(PathSet& remaining, const PathOrder& order)
{
    for (const auto& up : order)
    {
        if (std::find(remaining.all.begin(), remaining.all.end(), up) == remaining.all.end())
        {
            throw std::invalid_argument("an order has path " + std::to_string(up.first) + " " + std::to_string(up.second) +
                                        ", which does not exist or has failed");
        }
    }
    remaining.all = order;
}

} // namespace

PathSelector::PathSelector(const Settings& settings)
    : m_tree(settings.fabric),
      m_random(settings.seed),
      m_first_path(settings.first_path),
      m_settings(settings)
{
    m_within_rack.all = {{0xff, 0xff}};
    for (std::uint32_t j = 0; j < m_tree.aggregations; ++j)
    {
        m_within_pod.all.emplace_back(j, 0xff);
    }
    for (std::uint32_t i = 0; i < m_tree.cores_of_group; ++i)
    {
        for (std::uint32_t j = 0; j < m_tree.aggregations; ++j)
        {
            m_between_pods.all.emplace_back(j, i);
        }
    }
    if (settings.path_order == "core")
    {
        std::sort(m_between_pods.all.begin(), m_between_pods.all.end());
    }
    Complete(m_within_pod);
    Complete(m_between_pods);
}

void
PathSelector::Complete(PathSet& paths) const
{
    paths.second.assign(m_tree.aggregations, {});
    for (const auto& [up1, up2] : paths.all)
    {
        if (paths.second[up1].empty())
        {
            paths.first.push_back(up1);
        }
        paths.second[up1].push_back(up2);
    }
}

void
PathSelector::Begin(Flow& flow)
{
    const auto& all = PathSetOf(flow).all;
    const auto of_host = [&](Host host) { return m_tree.EdgeOf(host) * m_tree.hosts_per_edge + m_tree.PlaceOf(host); };
    std::uint32_t at = 0;
    if (m_first_path == "random")
    {
        at = Random(static_cast<std::uint32_t>(std::max<std::size_t>(1, all.size())));
    }
    else if (m_first_path == "hash") // of the agent; its first packet takes the path after `next`
    {
        const flow_key key{m_tree.AddressOf(flow.source), m_tree.AddressOf(flow.destination), flow.ports, TCP};
        const auto count = static_cast<std::uint32_t>(std::max<std::size_t>(1, all.size()));
        at = scaled(flow_hash(&key, static_cast<std::uint32_t>(m_settings.seed)), count) + count - 1;
    }
    else if (m_first_path == "sender")
    {
        at = of_host(flow.source);
    }
    else if (m_first_path == "receiver")
    {
        at = of_host(flow.destination);
    }
    flow.next = all.empty() ? 0 : at % all.size();
}

void
PathSelector::Learn(Fabric& fabric)
{
    m_fabric = &fabric;
    m_remaining.clear();
    ++m_version;
}

const PathSet&
PathSelector::Find(Flow& flow)
{
    flow.version = m_version;
    const std::uint32_t from = m_tree.RackOf(flow.source), to = m_tree.RackOf(flow.destination);
    const std::uint32_t pod = m_tree.PodOfRack(from), last = m_tree.PodOfRack(to);
    const PathSet& whole = from == to ? m_within_rack : pod == last ? m_within_pod : m_between_pods;
    if (!m_fabric || from == to)
    {
        return *(flow.paths = &whole);
    }
    const auto [found, made] = m_remaining.try_emplace({from, to});
    PathSet& remaining = found->second;
    if (made)
    {
        for (const auto& [up1, up2] : whole.all)
        {
            bool works = m_fabric->link(m_tree.FromEdge(from, up1)).up &&
                         m_fabric->link(m_tree.ToEdge(last, up1, to % m_tree.edges)).up;
            if (works && pod != last)
            {
                works = m_fabric->link(m_tree.FromAggregation(pod, up1, up2)).up &&
                        m_fabric->link(m_tree.ToPod(up1, up2, last)).up;
            }
            if (works)
            {
                remaining.all.emplace_back(up1, up2);
            }
        }
        Complete(remaining);
        if (const PathOrder* order = OrderOf(from, to))
        {
            Reorder(remaining, *order);
        }
    }
    return *(flow.paths = &remaining);
}

// Return the order between two racks that is in force now, or null.
const PathOrder*
PathSelector::OrderOf(std::uint32_t from, std::uint32_t to) const
{
    const auto found = m_settings.order_of.find({from, to});
    std::int64_t last = -1;
    if (found != m_settings.order_of.end())
    {
        for (const TimedOrder& one : found->second)
        {
            last = one.from <= ns3::Simulator::Now().GetTimeStep() ? one.order : last;
        }
    }
    return last < 0 ? nullptr : &m_settings.orders[last];
}

void
PathSelector::RoundRobinAtHost(Flow& flow, std::uint8_t& up1, std::uint8_t& up2)
{
    const auto& all = PathSetOf(flow).all;
    if (!all.empty())
    {
        flow.next = flow.next + 1 < all.size() ? flow.next + 1 : 0;
        std::tie(up1, up2) = all[flow.next];
    }
}

std::uint64_t
PathSelector::CellAtHost(Flow& flow, std::uint32_t bytes, std::uint32_t cell, std::uint8_t& up1, std::uint8_t& up2)
{
    const auto& all = PathSetOf(flow).all;
    const std::uint64_t number = flow.bytes / cell;
    if (!all.empty())
    {
        std::tie(up1, up2) = all[(flow.next + number) % all.size()];
    }
    flow.bytes += bytes;
    return number;
}

void
SwitchSelector::AtEdge(InFlightPacket& in_flight, Fabric&)
{
    const PathSet& paths = PathSetOf(*in_flight.flow);
    if (!paths.first.empty())
    {
        in_flight.up1 = paths.first[Next(in_flight, 0, paths.first.size())];
    }
}

void
SwitchSelector::AtAggregation(InFlightPacket& in_flight, Fabric&)
{
    const auto& second = PathSetOf(*in_flight.flow).second[in_flight.up1];
    if (!second.empty())
    {
        in_flight.up2 = second[Next(in_flight, 1 + in_flight.up1, second.size())];
    }
}

Hash::Hash(const Settings& settings)
    : SwitchSelector(settings),
      m_same(settings.hash == "same")
{
}

std::size_t
Hash::Next(InFlightPacket& in_flight, std::uint32_t at, std::size_t count)
{
    const std::uint64_t which = m_same ? 1 : 1 + at + (m_tree.aggregations + 1) * m_tree.RackOf(in_flight.source);
    return Mix(HashOf(in_flight), which) % count;
}

namespace
{

// Random packet spraying (Dixit et al., INFOCOM 2013). PLTS-RND is identical.
class Spray : public SwitchSelector
{
  public:
    using SwitchSelector::SwitchSelector;

  protected:
    std::size_t Next(InFlightPacket&, std::uint32_t, std::size_t count) override
    {
        return Random(static_cast<std::uint32_t>(count));
    }
};

// Each switch uses its uplinks round-robin, separately for each flow (PLTS paper, PLTS-RR).
class RoundRobin : public SwitchSelector
{
  public:
    using SwitchSelector::SwitchSelector;

    void Begin(Flow& flow) override
    {
        PathSelector::Begin(flow);
        flow.at_switches.assign(1 + m_tree.aggregations, 0);
        std::uint32_t uplinks = m_tree.aggregations; // of the edge switch, which is the first
        for (auto& next : flow.at_switches)
        {
            next = Random(uplinks);
            uplinks = std::max(1u, m_tree.cores_of_group);
        }
    }

  protected:
    std::size_t Next(InFlightPacket& in_flight, std::uint32_t at, std::size_t count) override
    {
        return in_flight.flow->at_switches[at]++ % count;
    }
};

// Each switch uses the uplink that has carried the fewest bytes of the flow; of equal ones any, by chance.
class LeastUsed : public SwitchSelector
{
  public:
    using SwitchSelector::SwitchSelector;

    void Begin(Flow& flow) override { flow.at_switches.assign((1 + m_tree.aggregations) * Uplinks(), 0); }

  protected:
    std::size_t Next(InFlightPacket& in_flight, std::uint32_t at, std::size_t count) override
    {
        return Take(in_flight, at, count, in_flight.flow->at_switches.data() + at * Uplinks());
    }

    // Use one of a switch's uplinks, whose counters are by port.
    template <typename Counter>
    std::size_t Take(InFlightPacket& in_flight, std::uint32_t at, std::size_t count, Counter* carried)
    {
        const auto& ports = UplinksOf(in_flight, at);
        std::uint32_t equal = 1;
        std::size_t found = 0;
        for (std::size_t hop = 1; hop < count; ++hop)
        {
            if (carried[ports[hop]] < carried[ports[found]])
            {
                found = hop;
                equal = 1;
            }
            else if (carried[ports[hop]] == carried[ports[found]] && Random(++equal) == 0)
            {
                found = hop;
            }
        }
        carried[ports[found]] += in_flight.bytes;
        return found;
    }

    std::uint32_t Uplinks() const { return std::max(m_tree.aggregations, m_tree.cores_of_group); } // of any switch, at most
};

// Each switch uses the uplink whose port has carried the fewest bytes, of all flows (PLTS paper, section 2, PLTS-CNT).
class PortCounters : public LeastUsed
{
  public:
    explicit PortCounters(const Settings& settings)
        : LeastUsed(settings),
          m_carried(Switches() * Uplinks())
    {
    }

    void Begin(Flow& flow) override { PathSelector::Begin(flow); }

  protected:
    std::size_t Next(InFlightPacket& in_flight, std::uint32_t at, std::size_t count) override
    {
        return Take(in_flight, at, count, m_carried.data() + SwitchOf(in_flight, at) * Uplinks());
    }

  private:
    std::vector<std::uint64_t> m_carried;
};

template <typename T>
std::unique_ptr<PathSelector>
Make(const Settings& settings)
{
    return std::make_unique<T>(settings);
}

const std::map<std::string, std::function<std::unique_ptr<PathSelector>(const Settings&)>> SCHEMES{
    {"sopa", Make<Sopa>},
    {"sopa-skip", Make<Sopa>}, // with skip counters at the device
    {"cfr", Make<Sopa>}, // for what has no slot; the others are as Gate says
    {"flowcell", Make<Flowcell>},
    {"drb", Make<Drb>},
    {"hedera", Make<Hedera>},
    {"rps", Make<Spray>},
    {"plts-rnd", Make<Spray>},
    {"plts-rr", Make<RoundRobin>},
    {"plts-cnt", Make<PortCounters>},
    {"least-used", Make<LeastUsed>},
    {"letflow", Make<LetFlow>},
    {"drill", Make<Drill>},
    {"adaptive", Make<Adaptive>},
    {"presto", Make<Presto>},
    {"conweave", Make<ConWeave>},
    {"ecmp", Make<Hash>},
    {"ecmp-vcc", Make<ChannelHash>},
    {"mcs-ports", Make<ChannelHash>},
    {"mcs", Make<ChannelPath>},
    {"sopa-feedback", Make<ChannelPath>},
    {"mptcp", Make<Hash>},
    {"per-packet", Make<PerPacket>},
    {"plb", Make<ChannelHash>},
    {"reps", Make<RecycledHash>},
};

} // namespace

std::unique_ptr<PathSelector>
MakePathSelector(const Settings& settings)
{
    const auto found = SCHEMES.find(settings.scheme);
    if (found == SCHEMES.end())
    {
        std::string names;
        for (const auto& [name, _] : SCHEMES)
        {
            names += (names.empty() ? "" : ", ") + name;
        }
        throw std::invalid_argument("unknown scheme " + settings.scheme + ": expected one of " + names);
    }
    return found->second(settings);
}

} // namespace sopa
