#include "hedera.h"

#include "ns3/simulator.h"

#include <algorithm>
#include <cmath>

namespace sopa
{

namespace
{

constexpr double ELEPHANT = 0.1; // of a link's rate (section 6.1)
constexpr double TOLERANCE = 1e-6;

} // namespace

void
EstimateDemands(std::vector<Elephant>& elephants, const std::function<double(Host)>& capacity)
{
    std::map<Host, std::vector<Elephant*>> from, to;
    for (Elephant& one : elephants)
    {
        one.demand = 0;
        one.limited = false;
        from[one.flow->source].push_back(&one);
        to[one.flow->destination].push_back(&one);
    }
    for (bool changed = true; changed;)
    {
        changed = false;
        const auto set = [&](Elephant& one, double demand) {
            changed |= std::abs(one.demand - demand) > TOLERANCE;
            one.demand = demand;
        };
        for (auto& [host, its] : from)
        {
            double room = capacity(host);
            std::size_t free = 0;
            for (const Elephant* one : its)
            {
                room -= one->limited ? one->demand : 0;
                free += !one->limited;
            }
            for (Elephant* one : its)
            {
                if (!one->limited)
                {
                    set(*one, std::max(0.0, room) / free);
                }
            }
        }
        for (auto& [host, its] : to)
        {
            double sum = 0;
            for (const Elephant* one : its)
            {
                sum += one->demand;
            }
            if (sum <= capacity(host) + TOLERANCE)
            {
                continue;
            }
            // Flows with a demand below the equal share keep it; the others share the rest equally.
            std::vector<Elephant*> large = its;
            double room = capacity(host), share = room / its.size();
            for (bool smaller = true; smaller && !large.empty();)
            {
                const auto rest = std::partition(large.begin(), large.end(), [share](const Elephant* one) {
                    return one->demand >= share - TOLERANCE;
                });
                smaller = rest != large.end();
                for (auto one = rest; one != large.end(); ++one)
                {
                    room -= (*one)->demand;
                }
                large.erase(rest, large.end());
                share = large.empty() ? share : room / large.size();
            }
            for (Elephant* one : large)
            {
                set(*one, share);
                one->limited = true;
            }
        }
    }
}

Hedera::Hedera(const Settings& settings)
    : Hash(settings),
      m_rate(settings.rates[0]),
      m_core_share(settings.core_share),
      m_period(settings.hedera_period),
      m_threshold(ELEPHANT * settings.rates[0] / 8 * settings.hedera_period / 1e9)
{
}

void
Hedera::Start(Fabric& fabric)
{
    m_fabric = &fabric;
    ns3::Simulator::Schedule(ns3::TimeStep(m_period), [this] { Schedule(); });
}

void
Hedera::Begin(Flow& flow)
{
    Hash::Begin(flow);
    m_flows.push_back(&flow);
}

void
Hedera::AtEdge(InFlightPacket& in_flight, Fabric& fabric)
{
    in_flight.flow->counted += in_flight.bytes;
    Hash::AtEdge(in_flight, fabric);
}

std::size_t
Hedera::Next(InFlightPacket& in_flight, std::uint32_t at, std::size_t count)
{
    Flow& flow = *in_flight.flow;
    if (flow.placed)
    {
        const PathSet& paths = PathSetOf(flow);
        const auto& hops = at ? paths.second[in_flight.up1] : paths.first;
        const auto found = std::find(hops.begin(), hops.end(), at ? flow.placed_up2 : flow.placed_up1);
        if (found != hops.end())
        {
            return found - hops.begin();
        }
    }
    return Hash::Next(in_flight, at, count);
}

void
Hedera::Place(const Elephant& elephant, std::vector<double>& taken)
{
    Flow& flow = *elephant.flow;
    const std::uint32_t pod = m_tree.PodOf(flow.source), last = m_tree.PodOf(flow.destination);
    const std::uint32_t from = m_tree.RackOf(flow.source), to = m_tree.RackOf(flow.destination);
    const auto fits = [&](std::pair<std::uint8_t, std::uint8_t> up) {
        std::vector<LinkId> links{m_tree.FromEdge(from, up.first), m_tree.ToEdge(last, up.first, to % m_tree.edges)};
        if (pod != last)
        {
            links.push_back(m_tree.FromAggregation(pod, up.first, up.second));
            links.push_back(m_tree.ToPod(up.first, up.second, last));
        }
        if (std::any_of(links.begin(), links.end(), [&](LinkId id) { return taken[id] + elephant.demand > Capacity(id) + TOLERANCE; }))
        {
            return false;
        }
        for (const LinkId id : links)
        {
            taken[id] += elephant.demand;
        }
        return true;
    };
    if (from == to || (flow.placed && fits({flow.placed_up1, flow.placed_up2})))
    {
        return;
    }
    for (const auto& up : PathSetOf(flow).all)
    {
        if (fits(up))
        {
            flow.placed = true;
            flow.placed_up1 = up.first;
            flow.placed_up2 = up.second;
            return;
        }
    }
}

void
Hedera::Schedule()
{
    std::vector<Elephant> elephants;
    for (Flow* flow : m_flows)
    {
        if (flow->counted >= m_threshold)
        {
            elephants.push_back({flow});
        }
        else
        {
            flow->placed = false; // its flow entry has expired
        }
        flow->counted = 0;
    }
    EstimateDemands(elephants, [this](Host host) { return Capacity(m_tree.FromHost(host)); });
    std::vector<double> taken(m_tree.links, 0.0);
    // Flows with a path come first.
    std::stable_partition(elephants.begin(), elephants.end(), [](const Elephant& one) { return one.flow->placed; });
    for (const Elephant& one : elephants)
    {
        Place(one, taken);
    }
    ns3::Simulator::Schedule(ns3::TimeStep(m_period), [this] { Schedule(); });
}

} // namespace sopa
