#include "slots.h"

#include "path_selector.h"

#include "ns3/simulator.h"

#include <algorithm>
#include <map>

namespace sopa
{

namespace
{

constexpr unsigned BATCH = 4; // slots
// Cells that the arbiter takes into account: demands above are equal, and get slots in turn, while smaller ones are in order.
constexpr std::uint64_t MAX_CELLS = 256;
constexpr std::uint64_t PERCENT = 100;
constexpr std::uint32_t HEADERS = 24; // IP with the option; TCP's are in a segment

std::int64_t
Now()
{
    return ns3::Simulator::Now().GetTimeStep();
}

std::int64_t
SlotOf(const Settings& settings, std::uint64_t cell)
{
    const std::uint64_t carried = 8 * cell * 1'000'000'000 / settings.rates[0];
    return static_cast<std::int64_t>(carried * PERCENT / (PERCENT - settings.slot_guard) + 1);
}

} // namespace

SlotArbiter::SlotArbiter(const Settings& settings, Fabric& fabric, std::uint32_t segment)
    : m_fabric(fabric),
      m_packet(settings.packet),
      m_segment(segment),
      m_host_rate(settings.rates[0]),
      m_cell(std::uint64_t(settings.slot_packets) * settings.packet),
      m_slot(SlotOf(settings, m_cell)),
      m_delay(settings.arbiter_delay),
      m_knows_flows(settings.demand == "flow"),
      m_knows_sockets(settings.demand == "socket")
{
    static const std::map<std::string, allocator::Order> ORDERS{{"min-max-min", allocator::Order::min_max_min},
                                                           {"alternating", allocator::Order::alternating},
                                                           {"smallest", allocator::Order::smallest}};
    static const std::map<std::string, allocator::Paths> PATHS{{"colouring", allocator::Paths::colouring},
                                                               {"next-fit-ga", allocator::Paths::next_fit_ga},
                                                               {"next-fit", allocator::Paths::next_fit},
                                                               {"first-fit", allocator::Paths::first_fit},
                                                               {"first-fit-ga", allocator::Paths::first_fit_ga}};
    for (int level = 0; level < 3; ++level)
    {
        m_levels[level] = static_cast<std::int64_t>(8'000'000'000ull * settings.packet / settings.rates[level]) + settings.delay;
    }
    m_version = fabric.selector().version();
    m_arbiter = std::make_unique<allocator::Arbiter>(Capacities(),
                                                       ORDERS.at(settings.arbiter_order),
                                                       PATHS.at(settings.arbiter_paths),
                                                       BATCH,
                                                       settings.seed);
}

allocator::Fabric
SlotArbiter::Capacities()
{
    const Clos& tree = m_fabric.tree;
    allocator::Fabric its;
    its.pods = tree.pods;
    its.edges = tree.edges;
    its.aggregations = tree.aggregations;
    its.cores = tree.cores_of_group * tree.aggregations;
    its.hosts = tree.hosts_per_edge;
    // Cells that a link carries in a slot: whole ones, but at least one.
    const auto cells = [this](LinkId up, LinkId down) -> std::uint8_t {
        const Link &one = m_fabric.link(up), &other = m_fabric.link(down);
        const std::uint64_t rate = std::min(one.rate(), other.rate());
        return one.up && other.up ? std::clamp<std::uint64_t>(rate / m_host_rate, 1, UINT8_MAX) : 0;
    };
    for (Host host = 0; host < tree.hosts; ++host)
    {
        its.host.push_back(cells(tree.FromHost(host), tree.ToHost(host)) ? 1 : 0);
    }
    for (std::uint32_t rack = 0; rack < tree.racks; ++rack)
    {
        for (std::uint32_t up1 = 0; up1 < tree.aggregations; ++up1)
        {
            its.edge_uplink.push_back(cells(tree.FromEdge(rack, up1), tree.ToEdge(tree.PodOfRack(rack), up1, rack % tree.edges)));
        }
    }
    for (std::uint32_t pod = 0; pod < tree.pods; ++pod)
    {
        for (std::uint32_t up1 = 0; up1 < tree.aggregations; ++up1)
        {
            for (std::uint32_t up2 = 0; up2 < tree.cores_of_group; ++up2)
            {
                its.aggregation_uplink.push_back(cells(tree.FromAggregation(pod, up1, up2), tree.ToPod(up1, up2, pod)));
            }
        }
    }
    return its;
}

std::uint64_t
SlotArbiter::PacketBytes(std::uint64_t payload) const
{
    return payload + (payload + m_segment - 1) / m_segment * (m_packet - m_segment);
}

std::int64_t
SlotArbiter::Lag(Host source, Host destination) const
{
    const Clos& tree = m_fabric.tree;
    const bool has_cores = tree.pods > 1;
    if (tree.RackOf(source) == tree.RackOf(destination))
    {
        return 2 * m_levels[1] + (has_cores ? 2 * m_levels[2] : 0);
    }
    return has_cores && tree.PodOf(source) == tree.PodOf(destination) ? 2 * m_levels[2] : 0;
}

void
SlotArbiter::Start()
{
    ns3::Simulator::Schedule(ns3::TimeStep(0), [this] { Batch(); });
}

SlotArbiter::Pair&
SlotArbiter::PairOf(Host source, Host destination)
{
    return m_pairs[std::uint64_t(source) << 32 | destination];
}

void
SlotArbiter::Demand(Host source, Host destination, std::uint64_t bytes)
{
    m_reports.push_back({Now(), source, destination, bytes});
}

void
SlotArbiter::Apply(const Report& report)
{
    Pair& pair = PairOf(report.source, report.destination);
    while (!pair.pending.empty() && pair.pending.front().begins <= report.at)
    {
        pair.pending.pop_front(); // the host knew what it had sent in this slot
    }
    std::uint64_t promised = 0;
    for (const Pending& one : pair.pending)
    {
        promised += one.bytes;
    }
    m_wanting -= pair.left > 0;
    pair.left = report.bytes > promised ? std::min(report.bytes - promised, MAX_CELLS * m_cell) : 0;
    m_wanting += pair.left > 0;
    m_arbiter->demand(report.source, report.destination, static_cast<std::uint32_t>((pair.left + m_cell - 1) / m_cell));
}

void
SlotArbiter::Batch()
{
    const std::int64_t now = Now();
    if (m_fabric.selector().version() != m_version)
    {
        m_version = m_fabric.selector().version();
        m_arbiter->follow(Capacities());
    }
    while (!m_reports.empty() && m_reports.front().at + m_delay <= now)
    {
        Apply(m_reports.front());
        m_reports.pop_front();
    }
    if (m_wanting)
    {
        for (const allocator::Grant& grant : m_arbiter->batch())
        {
            Pair& pair = PairOf(grant.source, grant.destination);
            const std::uint64_t bytes = std::min(m_cell, pair.left);
            m_wanting -= bytes > 0 && bytes == pair.left;
            pair.left -= bytes;
            const std::int64_t wait = m_delay + grant.slot * m_slot + Lag(grant.source, grant.destination);
            pair.pending.push_back({now + wait, bytes});
            Gate* const gate = m_gates[grant.source];
            ns3::Simulator::ScheduleWithContext(grant.source, ns3::TimeStep(wait), [this, gate, grant] {
                gate->Open(grant.destination, grant.up1, grant.up2, m_cell);
            });
        }
    }
    ns3::Simulator::Schedule(ns3::TimeStep(BATCH * m_slot), [this] { Batch(); });
}

void
Gate::Begins(Host destination, std::int64_t bytes)
{
    if (m_arbiter.knows_flows())
    {
        m_queues[destination].endless |= bytes < 0;
        Announce(destination, std::max<std::int64_t>(bytes, 0));
    }
}

void
Gate::Passed(Host destination, std::int64_t bytes)
{
    if (m_arbiter.knows_sockets())
    {
        Announce(destination, bytes);
    }
}

void
Gate::Announce(Host destination, std::int64_t bytes)
{
    Queue& queue = m_queues[destination];
    queue.announced += bytes;
    Report(destination, queue, false);
}

void
Gate::Hold(Flow& flow, ns3::Ptr<ns3::Packet> segment, std::uint32_t payload, bool is_new)
{
    Queue& queue = m_queues[flow.destination];
    queue.held.push_back({&flow, segment, segment->GetSize() + HEADERS});
    queue.bytes += queue.held.back().bytes;
    queue.announced -= is_new ? std::min<std::int64_t>(payload, queue.announced) : 0;
    Report(flow.destination, queue, false);
}

bool
Gate::Holds(const Flow& flow) const
{
    const auto queue = m_queues.find(flow.destination);
    return queue != m_queues.end() && std::any_of(queue->second.held.begin(), queue->second.held.end(),
                                                  [&flow](const Held& one) { return one.flow == &flow; });
}

void
Gate::Open(Host destination, std::uint8_t up1, std::uint8_t up2, std::uint64_t room)
{
    Queue& queue = m_queues[destination];
    while (!queue.held.empty() && queue.held.front().bytes <= room)
    {
        const Held one = queue.held.front();
        queue.held.pop_front();
        queue.bytes -= one.bytes;
        room -= one.bytes;
        m_send(*one.flow, one.segment, up1, up2);
    }
    Report(destination, queue, true);
}

void
Gate::Report(Host destination, Queue& queue, bool always)
{
    const std::uint64_t bytes = queue.endless ? UINT64_MAX : queue.bytes + m_arbiter.PacketBytes(queue.announced);
    if (always || bytes != queue.reported)
    {
        queue.reported = bytes;
        m_arbiter.Demand(m_host, destination, bytes);
    }
}

} // namespace sopa
