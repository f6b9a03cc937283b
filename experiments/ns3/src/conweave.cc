#include "conweave.h"

#include "ns3/simulator.h"

#include <algorithm>

namespace sopa
{

namespace
{

// The times of the authors' simulator (conweave-project/conweave-ns3, run.py, three tiers with losses): a reply may come 4 us beyond a
// round trip, which is half of the queue above which its links of 100 Gbit/s mark. The others, 16, 16, 300 and 1,000 us, are multiples.
constexpr std::int64_t PAUSE = 4, RELEASE = 4, UNKNOWN_GAP = 75, EXPIRY = 250;
constexpr std::int64_t NEVER = INT64_MAX, NS = 1'000'000'000;
constexpr std::uint16_t MESSAGE_BYTES = 64;

// A packet's channel says its kind, whether it has left after the move, and its epoch.
constexpr std::uint16_t AFTER = 4, EPOCH_SHIFT = 3, EPOCHS = 1 << 13;

std::int64_t
Serialization(std::uint64_t bytes, std::uint64_t rate)
{
    return static_cast<std::int64_t>(8 * bytes * NS / rate);
}

} // namespace

ConWeave::ConWeave(const Settings& settings)
    : PathSelector(settings),
      m_extra(Serialization((settings.ecn ? settings.ecn : settings.queue) * settings.packet / 2, settings.rates[1]))
{
    const std::uint64_t bytes = settings.packet + MESSAGE_BYTES; // there and back
    m_round_trip_in_pod = 2 * (Serialization(bytes, settings.rates[1]) + 2 * settings.delay);
    m_round_trip = m_round_trip_in_pod + 2 * (Serialization(bytes, settings.rates[2]) + 2 * settings.delay);
}

ConWeave::State&
ConWeave::StateOf(Flow& flow)
{
    State*& found = m_states[&flow];
    if (!found)
    {
        found = &m_all.emplace_back();
        Flow& back = found->back;
        back.source = flow.destination;
        back.destination = flow.source;
        back.hash = Mix(flow.hash, 2);
        back.message = Message::SWITCH;
        m_states[&back] = found;
    }
    return *found;
}

bool
ConWeave::IsCongested(const Flow& flow, const Label& path, std::int64_t now) const
{
    const auto found = m_congested.find({m_tree.RackOf(flow.source), m_tree.RackOf(flow.destination), path});
    return found != m_congested.end() && found->second > now;
}

// Return one of two paths by chance that no notice has named of late, otherwise the flow's present one.
Label
ConWeave::OtherPath(Flow& flow, const State& its, std::int64_t now)
{
    const auto& all = PathSetOf(flow).all;
    Label path = its.path;
    for (int sample = 0; sample < 2; ++sample)
    {
        path = all[Random(static_cast<std::uint32_t>(all.size()))];
        if (!IsCongested(flow, path, now))
        {
            return path;
        }
    }
    return its.has_path ? its.path : path;
}

void
ConWeave::AtEdge(InFlightPacket& in_flight, Fabric&)
{
    Flow& flow = *in_flight.flow;
    const auto& all = PathSetOf(flow).all;
    if (all.empty())
    {
        return;
    }
    if (!flow.transfer) // acknowledgements and messages
    {
        std::tie(in_flight.up1, in_flight.up2) = all[Mix(flow.hash, 1) % all.size()];
        return;
    }
    State& its = StateOf(flow);
    const std::int64_t now = ns3::Simulator::Now().GetTimeStep();
    if (its.version != version())
    {
        its.version = version();
        its.has_path = its.has_path && std::find(all.begin(), all.end(), its.path) != all.end();
    }
    const bool expired = !its.has_path || now - its.active > EXPIRY * m_extra;
    its.active = now;
    Kind kind = DATA;
    bool after = its.moved;
    if (expired)
    {
        its.path = OtherPath(flow, its, now);
        its.has_path = true;
    }
    Label next = its.path;
    if (expired || its.answered)
    {
        its.epoch = (its.epoch + 1) % EPOCHS;
        its.moved = after = its.answered = false;
        const bool in_pod = m_tree.PodOf(flow.source) == m_tree.PodOf(flow.destination);
        its.deadline = now + (in_pod ? m_round_trip_in_pod : m_round_trip) + m_extra;
        kind = FIRST;
    }
    else if (its.deadline < now)
    {
        its.deadline = NEVER;
        its.moved = true;
        its.tails[its.epoch % its.tails.size()] = in_flight.sent;
        next = OtherPath(flow, its, now);
        kind = TAIL;
    }
    std::tie(in_flight.up1, in_flight.up2) = its.path;
    its.path = next;
    in_flight.channel = kind | (after ? AFTER : 0) | its.epoch << EPOCH_SHIFT;
}

bool
ConWeave::AtLastSwitch(InFlightPacket& in_flight, Fabric& fabric)
{
    Flow& flow = *in_flight.flow;
    const std::int64_t now = ns3::Simulator::Now().GetTimeStep();
    if (flow.message == Message::SWITCH)
    {
        Hear(StateOf(flow), in_flight, now);
        return true;
    }
    if (!flow.transfer)
    {
        return false;
    }
    State& its = StateOf(flow);
    const auto kind = static_cast<Kind>(in_flight.channel & NOTICE);
    const bool after = in_flight.channel & AFTER;
    const std::uint16_t epoch = in_flight.channel >> EPOCH_SHIFT, ahead = (epoch - its.last_epoch + EPOCHS) % EPOCHS;
    if (in_flight.ecn == Ecn::MARKED)
    {
        Reply(its, NOTICE, epoch, in_flight, fabric);
    }
    if (ahead >= EPOCHS / 2)
    {
        return false; // of a former epoch
    }
    if (ahead)
    {
        Release(its, fabric);
        its.last_epoch = epoch;
        its.tail_seen = its.before_seen = false;
    }
    if (kind == FIRST || kind == TAIL)
    {
        Reply(its, kind, epoch, in_flight, fabric);
    }
    const std::int64_t tail = its.tails[epoch % its.tails.size()];
    if (!after)
    {
        its.sent_before = in_flight.sent;
        its.seen_before = now;
        its.before_seen = true;
        if (kind == TAIL)
        {
            its.tail_seen = true;
            fabric.Deliver(in_flight);
            Release(its, fabric);
            return true;
        }
        if (!its.held.empty())
        {
            ReleaseAt(its, now + std::max<std::int64_t>(0, tail - in_flight.sent) + RELEASE * m_extra, now, fabric);
        }
        return false;
    }
    if (its.tail_seen)
    {
        return false;
    }
    if (its.held.empty())
    {
        // The last packet on the former path arrives as long after the newest from there as it has left after it.
        const std::int64_t expected = its.before_seen ? its.seen_before + std::max<std::int64_t>(0, tail - its.sent_before)
                                                      : now + UNKNOWN_GAP * m_extra;
        ReleaseAt(its, expected + RELEASE * m_extra, now, fabric);
    }
    in_flight.Ref(); // until it is released
    its.held.push_back(&in_flight);
    return true;
}

// Process a message at the first switch.
void
ConWeave::Hear(State& its, const InFlightPacket& in_flight, std::int64_t now)
{
    const auto kind = static_cast<Kind>(in_flight.channel & NOTICE);
    if (kind == NOTICE)
    {
        const Label path(in_flight.delay >> 8, in_flight.delay & 0xff);
        m_congested[{m_tree.RackOf(in_flight.destination), m_tree.RackOf(in_flight.source), path}] = now + PAUSE * m_extra;
        return;
    }
    if (in_flight.channel >> EPOCH_SHIFT == its.epoch && its.moved == (kind == TAIL) && (kind == TAIL || now < its.deadline))
    {
        its.answered = true;
        its.deadline = NEVER;
    }
}

void
ConWeave::Reply(State& its, Kind kind, std::uint16_t epoch, const InFlightPacket& of, Fabric& fabric)
{
    const std::int32_t path = of.up1 << 8 | of.up2;
    fabric.SendFromEdge(its.back, MESSAGE_BYTES, kind | epoch << EPOCH_SHIFT, path);
}

void
ConWeave::ReleaseAt(State& its, std::int64_t when, std::int64_t now, Fabric& fabric)
{
    its.release.Cancel();
    its.release = ns3::Simulator::Schedule(ns3::TimeStep(std::max<std::int64_t>(0, when - now)), [this, &its, &fabric] {
        its.tail_seen = true; // it is given up
        Release(its, fabric);
    });
}

void
ConWeave::Release(State& its, Fabric& fabric)
{
    its.release.Cancel();
    for (InFlightPacket* in_flight : its.held)
    {
        fabric.Deliver(*in_flight);
        in_flight->Unref();
    }
    its.held.clear();
}

} // namespace sopa
