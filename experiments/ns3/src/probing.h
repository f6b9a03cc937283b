// The probes of a host, its own retransmissions, and the paths that it leaves because of them (docs/probes.md).
//
// Simplified against the agent: the list of probes is drawn by the seed and not computed from the structure, no probe is lost in a full
// queue, because probes overtake data everywhere, and paths are chosen anew with the next packet, not when a table is in force.
#pragma once

#include "path_health.h"

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace sopa
{

struct Flow;

constexpr std::uint32_t PROBE_BYTES = 102; // on the wire

class Prober
{
  public:
    // Sends a probe with that number to a host on a path.
    using Send = std::function<void(Host, Label, std::uint32_t)>;

    // Returns the candidate paths to a rack, without those that the controller excludes.
    using Candidates = std::function<std::vector<Label>(Host)>;

    Prober(const Clos& tree, Host host, std::uint64_t seed, Send send, Candidates candidates);

    void Start();

    // A probe has come back; `answers` is the number of those to probes of that path so far.
    void Answered(Host source, Label up, std::uint32_t number, std::uint32_t answers);

    // A segment leaves on a path: a retransmission counts against the path that has carried its first byte last.
    void Sent(const Flow& flow, Label up, std::uint32_t sequence, std::uint32_t payload);

    // Return whether this host has left a path to a host, of those that there are.
    bool Avoids(Host destination, Label up);

    // A section that was left or put back, and when.
    struct Change
    {
        std::int64_t at;
        PathHealth::Change what;
    };
    std::vector<Change> changes;
    std::uint64_t sent = 0, lost = 0;

  private:
    struct Stream
    {
        struct Open
        {
            std::uint32_t number;
            bool lost;
        };
        std::uint32_t next = 0, last_answers = 0;
        std::int64_t last_answered = -1;
        std::deque<Open> open;
    };
    struct Segments
    {
        bool any = false;
        std::uint32_t next = 0; // the sequence number after the highest byte
        std::deque<std::tuple<std::uint32_t, std::uint32_t, Label>> last; // sequence number, bytes, path
    };
    using StreamKey = std::pair<Host, Label>;

    void Assigned();
    void Busy();
    void Look();
    void Count();
    void Probe(Host destination, Label up);
    void Expire(const StreamKey& key, std::uint32_t number);
    void Decide(const StreamKey& key, bool came_back, bool through);
    void Repeat(std::int64_t period, void (Prober::*what)());
    double Now() const;

    const Clos& m_tree;
    const Host m_host;
    const Send m_send;
    const Candidates m_candidates;
    PathHealth m_health;
    std::mt19937_64 m_random;
    std::vector<Host> m_others; // one host of each other rack in turn
    std::uint64_t m_assigned = 0, m_busy = 0;
    std::map<StreamKey, Stream> m_streams;
    std::unordered_map<const Flow*, Segments> m_segments;
    std::map<Host, double> m_used; // when a packet was sent to a host last; one host for each rack
    std::map<Label, std::uint32_t> m_carried;
    std::unordered_map<std::uint32_t, std::set<Label>> m_gone; // by rack, of version `m_version`
    std::uint32_t m_version = 0;
};

} // namespace sopa
