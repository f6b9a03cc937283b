#include "feedback.h"

#include <algorithm>

namespace sopa
{

namespace
{

constexpr std::uint32_t ROUNDS = 12, IDLE_ROUNDS = 3; // net.ipv4.tcp_plb_rehash_rounds, tcp_plb_idle_rehash_rounds
constexpr std::uint64_t SHARE = 2;                    // 1 / SHARE of the data: net.ipv4.tcp_plb_cong_thresh

bool
Before(std::uint32_t a, std::uint32_t b)
{
    return static_cast<std::int32_t>(a - b) < 0;
}

} // namespace

void
Plb::Sent(const Flow& flow, std::uint32_t end)
{
    State& its = m_states[&flow];
    if (!its.known || Before(its.sent, end))
    {
        its.sent = end;
    }
    if (!its.known)
    {
        its.known = true;
        its.acknowledged = its.round_end = end;
    }
}

void
Plb::Acknowledged(Flow& flow, std::uint32_t acknowledgement, bool echo)
{
    const auto found = m_states.find(&flow);
    if (found == m_states.end() || !Before(found->second.acknowledged, acknowledgement))
    {
        return;
    }
    State& its = found->second;
    const std::uint32_t bytes = acknowledgement - its.acknowledged;
    its.acknowledged = acknowledgement;
    its.bytes += bytes;
    its.marked += echo ? bytes : 0;
    if (!Before(its.round_end, acknowledgement))
    {
        return;
    }
    its.rounds = SHARE * its.marked < its.bytes ? 0 : std::min(its.rounds + 1, ROUNDS);
    its.bytes = its.marked = 0;
    its.round_end = its.sent;
    const bool idle = !Before(acknowledgement, its.sent);
    if (its.rounds >= ROUNDS || (idle && its.rounds >= IDLE_ROUNDS))
    {
        flow.channel = m_random();
        its.rounds = 0;
    }
}

std::uint16_t
Reps::Next(const Flow& flow)
{
    State& its = m_states[&flow];
    if (its.explore || !its.valid)
    {
        its.explore -= its.explore > 0;
        return Random();
    }
    return its.entropies[(its.head + KEPT - its.valid--) % KEPT]; // the oldest
}

void
Reps::Echoed(const Flow& flow, std::uint16_t entropy, bool marked)
{
    if (marked)
    {
        return;
    }
    State& its = m_states[&flow];
    its.entropies[its.head] = entropy;
    its.head = (its.head + 1) % KEPT;
    its.valid = std::min(its.valid + 1, KEPT);
}

void
Skips::Add(State& its, Label path, std::uint32_t turns)
{
    std::uint32_t& left = its.turns[path];
    left = std::min(left + turns, MOST);
}

bool
Skips::Passes(const Flow& flow, Label path)
{
    State& its = m_states[&flow];
    const auto found = its.turns.find(path);
    if (found == its.turns.end())
    {
        return false;
    }
    if (--found->second == 0)
    {
        its.turns.erase(found);
    }
    return true;
}

void
Skips::Sent(const Flow& flow, std::uint32_t sequence, std::uint32_t end, Label path, std::uint64_t timeouts)
{
    State& its = m_states[&flow];
    if (its.sent.empty() || !Before(sequence, its.sent.back().end))
    {
        its.sent.push_back({sequence, end, path});
        return;
    }
    const std::uint32_t turns = timeouts > its.timeouts ? TIMEOUT : LOSS; // the first one after a timeout
    its.timeouts = timeouts;
    const auto after = std::upper_bound(its.sent.begin(), its.sent.end(), sequence,
                                        [](std::uint32_t number, const Segment& one) { return Before(number, one.end); });
    if (after != its.sent.end() && !Before(sequence, after->sequence))
    {
        Add(its, after->path, turns);
        after->path = path;
    }
}

void
Skips::Acknowledged(const Flow& flow, std::uint32_t acknowledgement)
{
    const auto found = m_states.find(&flow);
    if (found == m_states.end())
    {
        return;
    }
    auto& sent = found->second.sent;
    while (!sent.empty() && !Before(acknowledgement, sent.front().end))
    {
        sent.pop_front();
    }
}

} // namespace sopa
