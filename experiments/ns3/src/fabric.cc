#include "fabric.h"

#include "path_selector.h"

#include "ns3/simulator.h"

#include <algorithm>
#include <cstdio>
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

std::vector<void*> g_free; // of flights: one process, one thread

} // namespace

void*
Flight::operator new(std::size_t size)
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
Flight::operator delete(void* place)
{
    g_free.push_back(place);
}

void
Flight::Notify()
{
    fabric->Arrive(*this);
}

void
Flight::Prefetch() const
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
    m_size = capacity + 1; // and the one on the wire
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
    m_free = std::max(m_free, now) + Serialization(bytes);
    const std::size_t last = m_first + m_count;
    m_departures[last < m_size ? last : last - m_size] = m_free;
    ++m_count;
    return m_free + m_delay;
}

std::uint32_t
Link::Length(std::int64_t now)
{
    Forget(now);
    return m_count;
}

Fabric::Fabric(const Settings& settings, std::unique_ptr<Choice> choice)
    : tree(settings.k),
      receivers(tree.hosts),
      m_links(tree.links),
      m_choice(std::move(choice))
{
    for (LinkId id = 0; id < tree.links; ++id)
    {
        const bool core = (id >= tree.first_from_aggregation && id < tree.first_to_edge) || id >= tree.first_to_pod;
        m_links[id].Configure(core ? settings.core_rate : settings.rate,
                              settings.delay,
                              id < tree.hosts ? settings.host_queue : settings.queue);
    }
}

Fabric::~Fabric() = default;

void
Fabric::Send(Flow& flow, ns3::Ptr<ns3::Packet> packet, std::uint32_t bytes, std::uint8_t up1, std::uint8_t up2)
{
    const std::int64_t now = ns3::Simulator::Now().GetTimeStep();
    Link& first = m_links[tree.FromHost(flow.source)];
    const std::int64_t arrival = first.Enter(now, bytes);
    if (arrival < 0)
    {
        return;
    }
    auto* flight = new Flight;
    flight->fabric = this;
    flight->packet = packet;
    flight->flow = &flow;
    flight->source = flow.source;
    flight->destination = flow.destination;
    flight->sent = arrival - first.Transit(bytes);
    flight->bytes = bytes;
    flight->up1 = up1;
    flight->up2 = up2;
    flight->stage = EDGE;
    flight->next = Next(*flight);
    ns3::Simulator::ScheduleWithContext(flow.destination, ns3::TimeStep(arrival - now), flight);
}

// The link that a packet takes from the switch that it comes to next, unless that switch has yet to choose one.
LinkId
Fabric::Next(const Flight& flight) const
{
    const std::uint32_t last = tree.PodOf(flight.destination), edge = tree.RackOf(flight.destination) % tree.half;
    switch (flight.stage)
    {
    case EDGE:
        return flight.up1 == 0xff ? NO_LINK : tree.FromEdge(tree.RackOf(flight.source), flight.up1);
    case AGGREGATION:
        return tree.PodOf(flight.source) == last ? tree.ToEdge(last, flight.up1, edge)
               : flight.up2 == 0xff              ? NO_LINK
                                                 : tree.FromAggregation(tree.PodOf(flight.source), flight.up1, flight.up2);
    case CORE:
        return tree.ToPod(flight.up1, flight.up2, last);
    case AGGREGATION_DOWN:
        return tree.ToEdge(last, flight.up1, edge);
    case EDGE_DOWN:
        return tree.ToHost(flight.destination);
    default:
        return NO_LINK;
    }
}

void
Fabric::Forward(Flight& flight, LinkId link, std::uint8_t stage)
{
    const std::int64_t now = ns3::Simulator::Now().GetTimeStep();
    const std::int64_t arrival = link == NO_LINK ? -1 : m_links[link].Enter(now, flight.bytes);
    if (arrival < 0)
    {
        m_unroutable += link == NO_LINK;
        return; // the simulator's reference was the last one
    }
    flight.stage = stage;
    flight.next = Next(flight);
    flight.Ref(); // for its next arrival
    ns3::Simulator::ScheduleWithContext(flight.destination, ns3::TimeStep(arrival - now), &flight);
}

void
Fabric::Arrive(Flight& flight)
{
    const Host source = flight.source, destination = flight.destination;
    ++m_hops;
    switch (flight.stage)
    {
    case EDGE:
        if (tree.RackOf(source) == tree.RackOf(destination))
        {
            return Forward(flight, tree.ToHost(destination), HOST);
        }
        m_choice->AtEdge(flight, *this);
        return Forward(flight, Next(flight), AGGREGATION);
    case AGGREGATION:
        if (tree.PodOf(source) == tree.PodOf(destination))
        {
            return Forward(flight, Next(flight), EDGE_DOWN);
        }
        m_choice->AtAggregation(flight, *this);
        return Forward(flight, Next(flight), CORE);
    case CORE:
        flight.bytes -= m_choice->taken_off_at_core();
        return Forward(flight, flight.next, AGGREGATION_DOWN);
    case AGGREGATION_DOWN:
        return Forward(flight, flight.next, EDGE_DOWN);
    case EDGE_DOWN:
        return Forward(flight, flight.next, HOST);
    default:
        receivers[destination]->Receive(flight);
    }
}

void
Fabric::Fail(const std::string& name)
{
    const auto half = tree.half;
    unsigned a, b, c, d;
    int end = 0;
    const auto cut = [&](LinkId up, LinkId down) { m_links[up].up = m_links[down].up = false; };
    const auto whole = [&] { return end == static_cast<int>(name.size()); };
    if (std::sscanf(name.c_str(), "e%u_%u-a%u_%u%n", &a, &b, &c, &d, &end) == 4 && whole() && a == c && a < tree.k &&
        b < half && d < half)
    {
        cut(tree.FromEdge(a * half + b, d), tree.ToEdge(a, d, b));
    }
    else if (end = 0, std::sscanf(name.c_str(), "a%u_%u-c%u_%u%n", &a, &b, &c, &d, &end) == 4 && whole() && b == c &&
                          a < tree.k && b < half && d < half)
    {
        cut(tree.FromAggregation(a, b, d), tree.ToPod(b, d, a));
    }
    else if (end = 0, std::sscanf(name.c_str(), "a%u_%u%n", &a, &b, &end) == 2 && whole() && a < tree.k && b < half)
    {
        for (unsigned other = 0; other < half; ++other)
        {
            cut(tree.FromEdge(a * half + other, b), tree.ToEdge(a, b, other));
            cut(tree.FromAggregation(a, b, other), tree.ToPod(b, other, a));
        }
    }
    else if (end = 0, std::sscanf(name.c_str(), "c%u_%u%n", &a, &b, &end) == 2 && whole() && a < half && b < half)
    {
        for (unsigned pod = 0; pod < tree.k; ++pod)
        {
            cut(tree.FromAggregation(pod, a, b), tree.ToPod(a, b, pod));
        }
    }
    else
    {
        throw std::invalid_argument("there is no aggregation or core switch, and no link between switches, called " + name);
    }
}

} // namespace sopa
