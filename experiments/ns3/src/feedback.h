// Senders that change paths by what comes back, without MCS: PLB, which changes the path of a flow, and REPS and skip counters, that of
// each packet.
#pragma once

#include "avoided.h"
#include "flow.h"

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <unordered_map>

namespace sopa
{

// Protective load balancing (Qureshi et al., SIGCOMM 2022), as Linux' tcp_plb.c does it: a flow whose acknowledgements report marks on
// half of the data in several round trips on end takes another path.
class Plb
{
  public:
    explicit Plb(std::uint64_t seed)
        : m_random(seed)
    {
    }

    // Note data that a flow sends, up to a sequence number.
    void Sent(const Flow& flow, std::uint32_t end);

    // Process an acknowledgement of a flow's data, and change the flow's channel if it is time.
    void Acknowledged(Flow& flow, std::uint32_t acknowledgement, bool echo);

  private:
    struct State
    {
        bool known = false;
        std::uint32_t sent = 0, acknowledged = 0, round_end = 0;
        std::uint64_t bytes = 0, marked = 0; // of this round
        std::uint32_t rounds = 0;            // with congestion, on end
    };

    std::unordered_map<const Flow*, State> m_states;
    std::mt19937_64 m_random;
};

// Recycled entropies (Bonato et al., REPS, 2024): a sender uses first again the entropies of packets that have come back acknowledged
// and without a mark; without any, a random one. An entropy is a source port, and so a path.
class Reps
{
  public:
    explicit Reps(std::uint64_t seed)
        : m_random(seed)
    {
    }

    // Return the entropy of the next packet of a flow.
    std::uint16_t Next(const Flow& flow);

    // Process the echo of a packet.
    void Echoed(const Flow& flow, std::uint16_t entropy, bool marked);

    std::uint16_t Random() { return m_random(); }

  private:
    static constexpr std::size_t KEPT = 8;
    static constexpr std::uint32_t EXPLORED = 64; // packets of a new flow with random entropies: about a bandwidth-delay product

    struct State
    {
        std::array<std::uint16_t, KEPT> entropies;
        std::size_t head = 0, valid = 0;
        std::uint32_t explore = EXPLORED;
    };

    std::unordered_map<const Flow*, State> m_states;
    std::mt19937_64 m_random;
};

// Skip counters, as the bitmap of the Ultra Ethernet simulator has them: a path of a flow loses a turn for each mark that comes back, and
// several for a packet that TCP sends again. A skip moves one packet: without marks and losses nothing is skipped.
class Skips
{
  public:
    // Return whether a path loses this turn.
    bool Passes(const Flow& flow, Label path);

    void Marked(const Flow& flow, Label path) { Add(m_states[&flow], path, MARK); }
    void Trimmed(const Flow& flow, Label path) { Add(m_states[&flow], path, LOSS); }

    // Note on which path data leave. What left before was lost, and by a timeout if `timeouts`, those of the flow so far, have grown.
    void Sent(const Flow& flow, std::uint32_t sequence, std::uint32_t end, Label path, std::uint64_t timeouts);

    // Process a cumulative acknowledgement of a flow's data.
    void Acknowledged(const Flow& flow, std::uint32_t acknowledgement);

  private:
    static constexpr std::uint32_t MARK = 1, LOSS = 4, TIMEOUT = 15, MOST = 15;

    struct Segment
    {
        std::uint32_t sequence, end;
        Label path;
    };

    struct State
    {
        std::map<Label, std::uint32_t> turns; // to skip; a path without any is not there
        std::deque<Segment> sent;             // not acknowledged, in the order of their numbers
        std::uint64_t timeouts = 0;
    };

    static void Add(State& its, Label path, std::uint32_t turns);

    std::unordered_map<const Flow*, State> m_states;
};

} // namespace sopa
