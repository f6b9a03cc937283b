#include "fabric.h"

#include "path_selector.h"

#include "ns3/simulator.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace sopa
{

namespace
{

enum Stage : std::uint8_t
{
    EDGE,
    AGGREGATION,
    CORE,
    AGGREGATION_DOWN,
    EDGE_DOWN,
    HOST
};

std::vector<void*> g_free; // freed InFlightPackets, for reuse; the process has one thread

} // namespace

void*
InFlightPacket::operator new(std::size_t size)
{
    if (g_free.empty())
    {
        return ::operator new(size);
    }
    void* place = g_free.back();
    g_free.pop_back();
    return place;
}

void
InFlightPacket::operator delete(void* place)
{
    g_free.push_back(place);
}

void
InFlightPacket::Notify()
{
    fabric->Arrive(*this);
}

void
InFlightPacket::Prefetch() const
{
    if (next != NO_LINK)
    {
        __builtin_prefetch(&fabric->m_links[next]);
    }
    else if (stage == HOST)
    {
        __builtin_prefetch(ns3::PeekPointer(packet));
        __builtin_prefetch(fabric->receivers[destination]);
        __builtin_prefetch(flow);
    }
}

void
Link::Configure(std::uint64_t rate, std::int64_t delay, std::uint32_t capacity)
{
    m_rate = rate;
    m_delay = delay;
    m_size = capacity + 1; // plus the packet on the wire
    m_departures = std::make_unique<std::int64_t[]>(m_size);
}

void
Link::Forget(std::int64_t now)
{
    while (m_count && m_departures[m_first] <= now)
    {
        m_first = m_first + 1 == m_size ? 0 : m_first + 1;
        --m_count;
    }
}

std::int64_t
Link::Enter(std::int64_t now, std::uint32_t bytes)
{
    Forget(now);
    if (!up || m_count == m_size)
    {
        ++dropped;
        return -1;
    }
    m_marks = m_count > m_marking || (m_marking_ns && m_free - now > m_marking_ns);
    m_free = std::max(m_free, now) + Serialization(bytes);
    const std::size_t last = m_first + m_count;
    m_departures[last < m_size ? last : last - m_size] = m_free;
    ++m_count;
    m_longest = std::max<std::uint16_t>(m_longest, std::min<std::uint32_t>(m_count, UINT16_MAX));
    return m_free + m_delay;
}

std::int64_t
Link::Overtake(std::int64_t now, std::uint32_t bytes)
{
    if (!up)
    {
        ++dropped;
        return -1;
    }
    m_free = std::max(m_free, now) + Serialization(bytes);
    return now + Transit(bytes);
}

std::uint32_t
Link::Length(std::int64_t now)
{
    Forget(now);
    return m_count;
}

Fabric::Fabric(const Settings& settings, std::unique_ptr<PathSelector> selector)
    : tree(settings.fabric),
      receivers(tree.hosts),
      m_links(tree.links),
      m_selector(std::move(selector)),
      m_has_last_switch(m_selector->is_at_last_switch()),
      m_trim(settings.trim),
      m_acks_first(settings.acks_first)
{
    for (LinkId id = 0; id < tree.links; ++id)
    {
        Configure(settings, id, settings.rates[tree.LevelOf(id)]);
    }
    for (const auto& [name, rate] : settings.link_rates)
    {
        const auto links = tree.LinksOf(name);
        if (links.size() != 2 || name.find('-') == std::string::npos)
        {
            throw std::invalid_argument("unknown link " + name);
        }
        for (const LinkId id : links)
        {
            Configure(settings, id, rate);
        }
    }
    for (const std::string& name : settings.absent)
    {
        Fail(name);
    }
    if (!settings.absent.empty() || !settings.order_of.empty())
    {
        m_selector->Learn(*this);
    }
}

Fabric::~Fabric() = default;

void
Fabric::Send(Flow& flow, ns3::Ptr<ns3::Packet> packet, std::uint32_t bytes, std::uint8_t up1, std::uint8_t up2, Ecn ecn, bool urgent)
{
    const std::int64_t now = ns3::Simulator::Now().GetTimeStep();
    Link& first = m_links[tree.FromHost(flow.source)];
    const bool overtakes = urgent || (m_acks_first && !flow.transfer); // acknowledgements are no transfer's
    const std::int64_t arrival = overtakes ? first.Overtake(now, bytes) : first.Enter(now, bytes);
    if (arrival < 0)
    {
        return;
    }
    auto* in_flight = new InFlightPacket;
    in_flight->fabric = this;
    in_flight->packet = packet;
    in_flight->flow = &flow;
    in_flight->source = flow.source;
    in_flight->destination = flow.destination;
    in_flight->sent = arrival - first.Transit(bytes);
    in_flight->bytes = bytes;
    in_flight->up1 = up1;
    in_flight->up2 = up2;
    in_flight->urgent = urgent;
    in_flight->channel = flow.channel;
    in_flight->delay = flow.delay;
    in_flight->ecn = ecn != Ecn::NOT_CAPABLE && first.Marks() ? Ecn::MARKED : ecn;
    in_flight->stage = EDGE;
    in_flight->next = Next(*in_flight);
    ns3::Simulator::ScheduleWithContext(flow.destination, ns3::TimeStep(arrival - now), in_flight);
}

void
Fabric::SendFromEdge(Flow& flow, std::uint16_t bytes, std::uint16_t channel, std::int32_t path)
{
    auto* in_flight = new InFlightPacket;
    in_flight->fabric = this;
    in_flight->flow = &flow;
    in_flight->source = flow.source;
    in_flight->destination = flow.destination;
    in_flight->bytes = bytes;
    in_flight->channel = channel;
    in_flight->delay = path;
    in_flight->urgent = true;
    in_flight->stage = EDGE;
    Arrive(*in_flight);
    in_flight->Unref();
}

void
Fabric::Deliver(InFlightPacket& in_flight)
{
    Forward(in_flight, tree.ToHost(in_flight.destination), HOST);
}

// Return the link that a packet takes from the switch it reaches next, or NO_LINK if that switch selects one itself.
LinkId
Fabric::Next(const InFlightPacket& in_flight) const
{
    const std::uint32_t last = tree.PodOf(in_flight.destination), edge = tree.EdgeOf(in_flight.destination);
    switch (in_flight.stage)
    {
    case EDGE:
        return in_flight.up1 == 0xff ? NO_LINK : tree.FromEdge(tree.RackOf(in_flight.source), in_flight.up1);
    case AGGREGATION:
        return tree.PodOf(in_flight.source) == last ? tree.ToEdge(last, in_flight.up1, edge)
               : in_flight.up2 == 0xff              ? NO_LINK
                                                 : tree.FromAggregation(tree.PodOf(in_flight.source), in_flight.up1, in_flight.up2);
    case CORE:
        return tree.ToPod(in_flight.up1, in_flight.up2, last);
    case AGGREGATION_DOWN:
        return tree.ToEdge(last, in_flight.up1, edge);
    case EDGE_DOWN:
        return tree.ToHost(in_flight.destination);
    default:
        return NO_LINK;
    }
}

void
Fabric::Forward(InFlightPacket& in_flight, LinkId link, std::uint8_t stage)
{
    const std::int64_t now = ns3::Simulator::Now().GetTimeStep();
    if (m_trim && link != NO_LINK)
    {
        Trim(in_flight, link, now);
    }
    const std::int64_t arrival = link == NO_LINK    ? -1
                                 : in_flight.urgent ? m_links[link].Overtake(now, in_flight.bytes)
                                                    : m_links[link].Enter(now, in_flight.bytes);
    if (arrival < 0)
    {
        m_unroutable += link == NO_LINK;
        return; // dropped: the simulator releases the last reference
    }
    if (m_links[link].bad)
    {
        BadLink& how = m_bad.at(link);
        if (how.loss.Takes())
        {
            return; // after it has been on the wire
        }
        in_flight.corrupted |= how.corruption.Takes();
    }
    if (in_flight.ecn == Ecn::CAPABLE && m_links[link].Marks())
    {
        in_flight.ecn = Ecn::MARKED;
    }
    in_flight.stage = stage;
    in_flight.next = Next(in_flight);
    in_flight.Ref(); // for its next arrival
    ns3::Simulator::ScheduleWithContext(in_flight.destination, ns3::TimeStep(arrival - now), &in_flight);
}

// Cut a packet's data off if the queue before it is too long. Its headers overtake data from here on.
void
Fabric::Trim(InFlightPacket& in_flight, LinkId link, std::int64_t now)
{
    if (in_flight.urgent || !in_flight.flow->transfer || in_flight.bytes <= TRIMMED_BYTES || m_links[link].Length(now) <= m_trim)
    {
        return;
    }
    const bool last = link >= tree.first_to_host && link < tree.first_to_host + tree.hosts;
    in_flight.cut = last ? Cut::LAST_HOP : Cut::ON_PATH;
    in_flight.bytes = TRIMMED_BYTES;
    in_flight.urgent = true;
    ++m_trimmed;
}

void
Fabric::Arrive(InFlightPacket& in_flight)
{
    const Host source = in_flight.source, destination = in_flight.destination;
    ++m_hops;
    switch (in_flight.stage)
    {
    case EDGE:
        if (tree.RackOf(source) == tree.RackOf(destination))
        {
            return Forward(in_flight, tree.ToHost(destination), HOST);
        }
        m_selector->AtEdge(in_flight, *this);
        return Forward(in_flight, Next(in_flight), AGGREGATION);
    case AGGREGATION:
        if (tree.PodOf(source) == tree.PodOf(destination))
        {
            in_flight.bytes -= tree.cores_of_group ? 0 : m_selector->bytes_removed_at_top();
            return Forward(in_flight, Next(in_flight), EDGE_DOWN);
        }
        m_selector->AtAggregation(in_flight, *this);
        return Forward(in_flight, Next(in_flight), CORE);
    case CORE:
        in_flight.bytes -= m_selector->bytes_removed_at_top();
        return Forward(in_flight, in_flight.next, AGGREGATION_DOWN);
    case AGGREGATION_DOWN:
        return Forward(in_flight, in_flight.next, EDGE_DOWN);
    case EDGE_DOWN:
        if (m_has_last_switch && m_selector->AtLastSwitch(in_flight, *this))
        {
            return;
        }
        return Forward(in_flight, in_flight.next, HOST);
    default:
        receivers[destination]->Receive(in_flight);
    }
}

void
Fabric::Configure(const Settings& settings, LinkId id, std::uint64_t rate)
{
    if (tree.LevelOf(id) == 2)
    {
        rate = std::max<std::uint64_t>(1, std::llround(rate * settings.core_share));
    }
    m_links[id].Configure(rate, settings.delay, id < tree.hosts ? settings.host_queue : settings.queue);
    MarkFrom(settings, id);
}

// Let a queue mark from the lengths of the settings on, at its link's present rate.
void
Fabric::MarkFrom(const Settings& settings, LinkId id)
{
    // A mark at the last hop, which no path avoids, would say nothing of a path.
    const bool last = id >= tree.first_to_host && id < tree.first_to_host + tree.hosts;
    if ((id < tree.hosts && !settings.ecn_at_hosts) || (last && settings.scheme == "sopa-skip"))
    {
        return;
    }
    if (settings.ecn)
    {
        m_links[id].MarkAbove(settings.ecn);
    }
    if (settings.ecn_bytes)
    {
        m_links[id].MarkAboveBytes(settings.ecn_bytes);
    }
}

void
Fabric::Spoil(const Settings& settings, const BadLink& how)
{
    const LinkId id = DirectionOf(tree, how.name, how.towards);
    m_bad[id] = how;
    m_links[id].bad = true;
    if (how.rate)
    {
        m_links[id].SetRate(how.rate);
        MarkFrom(settings, id);
    }
}

void
Fabric::Fail(const std::string& name)
{
    const auto links = tree.LinksOf(name);
    if (links.empty() || tree.LevelOf(links.front()) == 0)
    {
        throw std::invalid_argument("unknown element " + name + ": expected an aggregation switch, a core switch or a link between switches");
    }
    for (const LinkId id : links)
    {
        m_links[id].up = false;
    }
}

} // namespace sopa
