#include "probing.h"

#include "flow.h"

#include "ns3/nstime.h"
#include "ns3/simulator.h"

#include <algorithm>

namespace sopa
{

namespace
{

constexpr std::int64_t MSEC = 1'000'000;
// 50 probes a second by the list, 200 with those of racks that packets go to
constexpr std::int64_t ASSIGNED = 20 * MSEC, BUSY = 1000 * MSEC / 150, LOOK = 50 * MSEC, COUNT = 1000 * MSEC;
constexpr std::int64_t FIRST_DEADLINE = 100 * MSEC, DEADLINE = 5 * MSEC; // delays.py, without queues
constexpr double BUSY_SECONDS = 1;
constexpr std::size_t MAX_BUSY = 16, SEGMENTS = 128; // reaction.py; sent.h

} // namespace

Prober::Prober(const Clos& tree, Host host, std::uint64_t seed, Send send, Candidates candidates)
    : m_tree(tree),
      m_host(host),
      m_send(std::move(send)),
      m_candidates(std::move(candidates)),
      m_health(tree.edges),
      m_random(seed * 1'000'003 + host)
{
    for (std::uint32_t rack = 0; rack < tree.racks; ++rack)
    {
        if (rack != tree.RackOf(host))
        {
            m_others.push_back(rack * tree.hosts_per_edge + m_random() % tree.hosts_per_edge);
        }
    }
    std::shuffle(m_others.begin(), m_others.end(), m_random);
}

double
Prober::Now() const
{
    return ns3::Simulator::Now().GetTimeStep() * 1e-9;
}

void
Prober::Repeat(std::int64_t period, void (Prober::*what)())
{
    ns3::Simulator::Schedule(ns3::TimeStep(period), [=] {
        (this->*what)();
        Repeat(period, what);
    });
}

void
Prober::Start()
{
    if (m_others.empty())
    {
        return;
    }
    // at a time of its own, or all hosts would send at once
    ns3::Simulator::Schedule(ns3::TimeStep(m_random() % ASSIGNED), [this] {
        Repeat(ASSIGNED, &Prober::Assigned);
        Repeat(BUSY, &Prober::Busy);
        Repeat(LOOK, &Prober::Look);
        Repeat(COUNT, &Prober::Count);
    });
}

void
Prober::Assigned()
{
    const Host destination = m_others[m_assigned % m_others.size()];
    const auto candidates = m_candidates(destination);
    if (!candidates.empty())
    {
        Probe(destination, candidates[(m_assigned / m_others.size() + m_host) % candidates.size()]);
    }
    ++m_assigned;
}

void
Prober::Busy()
{
    std::vector<StreamKey> found;
    if (m_health.avoids())
    {
        for (const auto& [key, stream] : m_streams)
        {
            if (m_health.Covers({m_tree.RackOf(key.first), key.second}))
            {
                found.push_back(key); // to find out whether it is good again
            }
        }
        std::shuffle(found.begin(), found.end(), m_random);
        found.resize(std::min<std::size_t>(found.size(), 4));
    }
    std::size_t racks = 0;
    for (const auto& [destination, at] : m_used)
    {
        if (Now() - at < BUSY_SECONDS && racks++ < MAX_BUSY)
        {
            for (const Label& up : m_candidates(destination))
            {
                found.emplace_back(destination, up);
            }
        }
    }
    if (!found.empty())
    {
        const auto& [destination, up] = found[m_busy++ % found.size()];
        Probe(destination, up);
    }
}

void
Prober::Probe(Host destination, Label up)
{
    const StreamKey key{destination, up};
    Stream& stream = m_streams[key];
    const std::uint32_t number = stream.next++;
    stream.open.push_back({number, false});
    ++sent;
    m_send(destination, up, number);
    const std::int64_t deadline = stream.last_answered < 0 ? FIRST_DEADLINE : DEADLINE;
    ns3::Simulator::Schedule(ns3::TimeStep(deadline), [this, key, number] { Expire(key, number); });
}

void
Prober::Decide(const StreamKey& key, bool came_back, bool through)
{
    lost += !came_back;
    m_health.Decided({m_tree.RackOf(key.first), key.second}, key.first, through, came_back, Now());
}

void
Prober::Answered(Host source, Label up, std::uint32_t number, std::uint32_t answers)
{
    const StreamKey key{source, up};
    Stream& stream = m_streams[key];
    // None overtakes another on a path: an answer decides about all probes before it.
    const std::int64_t missing = number - stream.last_answered - 1;
    const std::int64_t back = static_cast<std::int64_t>(answers) - stream.last_answers - 1;
    const bool is_known = stream.last_answered >= 0 && back >= 0 && back <= missing;
    std::int64_t out = is_known ? missing - back : 0;
    while (!stream.open.empty() && stream.open.front().number <= number)
    {
        const auto one = stream.open.front();
        stream.open.pop_front();
        if (one.number == number)
        {
            Decide(key, true, true);
        }
        else if (!one.lost)
        {
            Decide(key, false, is_known && out-- <= 0);
        }
    }
    stream.last_answered = number;
    stream.last_answers = answers;
}

void
Prober::Expire(const StreamKey& key, std::uint32_t number)
{
    for (auto& one : m_streams[key].open)
    {
        if (one.number == number && !one.lost)
        {
            one.lost = true;
            Decide(key, false, false);
        }
    }
}

void
Prober::Sent(const Flow& flow, Label up, std::uint32_t sequence, std::uint32_t payload)
{
    if (up.first == 0xff)
    {
        return;
    }
    ++m_carried[up];
    const Host destination = flow.destination;
    const auto same = [&](const auto& one) { return m_tree.RackOf(one.first) == m_tree.RackOf(destination); };
    const auto used = std::find_if(m_used.begin(), m_used.end(), same);
    (used == m_used.end() ? m_used[destination] : used->second) = Now();
    if (!payload)
    {
        return;
    }
    Segments& its = m_segments[&flow];
    if (its.any && static_cast<std::int32_t>(sequence - its.next) < 0)
    {
        for (auto one = its.last.rbegin(); one != its.last.rend(); ++one)
        {
            const auto& [first, bytes, label] = *one;
            if (sequence - first < bytes)
            {
                m_health.Retransmitted({m_tree.RackOf(destination), label}, Now());
                break;
            }
        }
    }
    its.next = !its.any || static_cast<std::int32_t>(sequence + payload - its.next) > 0 ? sequence + payload : its.next;
    its.any = true;
    its.last.emplace_back(sequence, payload, up);
    if (its.last.size() > SEGMENTS)
    {
        its.last.pop_front();
    }
}

bool
Prober::Avoids(Host destination, Label up)
{
    if (!m_health.avoids())
    {
        return false;
    }
    if (m_version != m_health.version())
    {
        m_version = m_health.version();
        m_gone.clear();
    }
    const std::uint32_t rack = m_tree.RackOf(destination);
    auto [found, made] = m_gone.try_emplace(rack);
    if (made)
    {
        found->second = m_health.Gone(rack, m_candidates(destination));
    }
    return found->second.count(up) > 0;
}

void
Prober::Look()
{
    m_health.Tick(Now());
    for (const auto& what : m_health.changes)
    {
        changes.push_back({ns3::Simulator::Now().GetTimeStep(), what});
    }
    m_health.changes.clear();
}

void
Prober::Count()
{
    m_health.Carried(m_carried, Now());
    m_carried.clear();
}

} // namespace sopa
