// ConWeave (Song et al., SIGCOMM 2023): the first switch of a flow moves it to another path when a reply comes late, one move at a
// time, and the last switch holds what has overtaken the former path.
#pragma once

#include "avoided.h"
#include "path_selector.h"

#include "ns3/event-id.h"

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <tuple>
#include <unordered_map>

namespace sopa
{

class ConWeave : public PathSelector
{
  public:
    explicit ConWeave(const Settings& settings);

    bool is_at_last_switch() const override { return true; }
    void AtEdge(InFlightPacket& in_flight, Fabric& fabric) override;
    bool AtLastSwitch(InFlightPacket& in_flight, Fabric& fabric) override;

  private:
    // What a packet of data asks of the last switch: nothing, or a reply to the first of an epoch, or to the last on the former path.
    // The last switch answers with the same, and reports a marked packet by a notice.
    enum Kind : std::uint16_t
    {
        DATA,
        FIRST,
        TAIL,
        NOTICE
    };

    // A flow's state at both switches. An epoch begins when the former one has been answered, and has at most one move.
    struct State
    {
        Flow back; // of the messages from the last switch to the first one

        std::int64_t active = 0, deadline = 0; // ns; the reply has to be there until then
        std::array<std::int64_t, 4> tails{};   // ns, when the last packet on the former path left, by epoch
        std::uint16_t epoch = 0;
        bool moved = false, answered = false, has_path = false;
        Label path;
        std::uint32_t version = 0; // of the paths that it was looked for in

        std::int64_t sent_before = 0, seen_before = 0; // ns, of the newest packet from before the move
        std::uint16_t last_epoch = 0;                  // at the last switch
        bool tail_seen = false, before_seen = false;
        std::deque<InFlightPacket*> held;
        ns3::EventId release;
    };

    State& StateOf(Flow& flow);
    Label OtherPath(Flow& flow, const State& its, std::int64_t now);
    bool IsCongested(const Flow& flow, const Label& path, std::int64_t now) const;
    void Hear(State& its, const InFlightPacket& in_flight, std::int64_t now);
    void Reply(State& its, Kind kind, std::uint16_t epoch, const InFlightPacket& of, Fabric& fabric);
    void ReleaseAt(State& its, std::int64_t when, std::int64_t now, Fabric& fabric);
    void Release(State& its, Fabric& fabric);

    const std::int64_t m_extra; // ns
    std::int64_t m_round_trip_in_pod, m_round_trip; // ns, between edge switches whose links are idle
    std::deque<State> m_all;
    std::unordered_map<const Flow*, State*> m_states; // of data, and of messages
    std::map<std::tuple<std::uint32_t, std::uint32_t, Label>, std::int64_t> m_congested; // ns until then, by racks and path
};

} // namespace sopa
