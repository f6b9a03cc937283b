// The network interface of a host together with the part of an IP layer that TCP needs: it tracks flows, labels their packets and
// sends them into the fabric. ns-3's IP layer exists only for sockets to bind to: passing every packet through it would take more
// processor time than TCP itself.
#pragma once

#include "fabric.h"
#include "feedback.h"
#include "mcs.h"
#include "probing.h"
#include "slots.h"

#include "ns3/error-model.h"
#include "ns3/event-id.h"
#include "ns3/ipv4-header.h"
#include "ns3/ipv4-interface.h"
#include "ns3/ipv4-route.h"
#include "ns3/node.h"
#include "ns3/queue.h"
#include "ns3/simple-channel.h"
#include "ns3/simple-net-device.h"
#include "ns3/tcp-l4-protocol.h"

#include <functional>
#include <map>
#include <memory>
#include <unordered_map>

namespace sopa
{

class Device : public ns3::SimpleNetDevice, public Receiver
{
  public:
    static ns3::TypeId GetTypeId();

    // Connect to the fabric. The node must have TCP.
    void Attach(Fabric& fabric, Host host);

    // Send data in bursts of so many packets, but hold none for longer than `wait` ns.
    void SetBurst(std::uint32_t packets, std::int64_t wait)
    {
        m_burst = packets;
        m_burst_wait = wait;
    }

    // Put the shim of MCS between TCP and the fabric.
    void SetShim(std::unique_ptr<Shim> shim) { m_shim = std::move(shim); }

    // Let the sending host change paths by what comes back.
    void SetPlb(std::uint64_t seed) { m_plb = std::make_unique<Plb>(seed); }
    void SetReps(std::uint64_t seed) { m_reps = std::make_unique<Reps>(seed); }
    void SetSkips() { m_skips = std::make_unique<Skips>(); }

    // Hold data until they have slots, from now on.
    void SetGate(SlotArbiter& arbiter);

    // Return whether this host labels packets, and so may choose the paths of probes.
    bool CanProbe() const;

    // Probe paths, and leave bad ones.
    void SetProber(std::uint64_t seed);

    // Return the prober, or null.
    Prober* prober() const { return m_prober.get(); }

    // Return the gate, or null.
    Gate* gate() const { return m_gate.get(); }

    // Send a small request, which its destination answers. The time until then is passed to the function of OnRoundTrip.
    void SendPing(Host destination);
    void OnRoundTrip(std::function<void(std::int64_t)> take) { m_on_round_trip = std::move(take); }

    void Receive(InFlightPacket& in_flight) override;
    bool NeedsArp() const override { return false; }

    // Set the interface that is passed to TCP with received packets.
    void SetInterface(ns3::Ptr<ns3::Ipv4Interface> interface) { m_interface = interface; }

    // Assign the data that leave from a source port to a transfer.
    void Expect(std::uint16_t port, TransferResult& transfer) { m_transfers[port] = &transfer; }

  private:
    void SendSegment(ns3::Ptr<ns3::Packet> segment,
                     ns3::Ipv4Address source,
                     ns3::Ipv4Address destination,
                     std::uint8_t protocol,
                     ns3::Ptr<ns3::Ipv4Route> route);
    // Packets of a flow that wait for the rest of their burst.
    struct Burst
    {
        std::vector<ns3::Ptr<ns3::Packet>> held;
        ns3::EventId timer;
    };

    // Hold new data until they are a burst. As Linux does, no longer than until they are a third of the window.
    void Gather(Flow& flow, ns3::Ptr<ns3::Packet> segment, std::uint32_t payload);
    void Release(Flow& flow, Burst& burst);

    // Send segments, which share a label, or with the shim a channel.
    void Send(Flow& flow, const std::vector<ns3::Ptr<ns3::Packet>>& segments);
    void Transmit(Flow& flow, const std::vector<ns3::Ptr<ns3::Packet>>& segments);
    void SendOn(Flow& flow, ns3::Ptr<ns3::Packet> segment, std::uint8_t up1, std::uint8_t up2);

    void SendMessage(Host destination, Message message, std::int64_t time);
    void ReceiveMessage(const InFlightPacket& in_flight);

    // Send a probe or its answer on a path, with the probe's number and that of answers so far.
    void SendProbe(Host destination, Message message, Label up, std::uint32_t number, std::uint32_t answers);
    void ReceiveProbe(const InFlightPacket& in_flight);

    // Take further paths of a flow until it is one that loses no turn.
    void Skip(Flow& flow, ns3::Packet& segment, std::uint8_t& up1, std::uint8_t& up2);

    // Take further paths of a flow until it is none that this host has left.
    void PassOver(Flow& flow, std::uint32_t bytes, std::uint8_t& up1, std::uint8_t& up2);

    Flow& FlowOf(std::uint32_t destination, std::uint32_t ports);

    // Return the flow in the other direction of a received packet, which this host sends.
    Flow& Back(std::uint32_t source, std::uint32_t ports) { return FlowOf(source, ports << 16 | ports >> 16); }

    // Tell the sender of a packet its entropy or path, and whether it was marked: an acknowledgement of this packet alone (REPS), or
    // with skip counters only of a marked one; or that its data were cut off, and which.
    void SendEcho(Flow& back, std::uint32_t ports, const InFlightPacket& in_flight, std::uint32_t sequence = 0);
    bool ReceiveEcho(const ns3::Packet& packet);

    struct Segment
    {
        ns3::Ptr<ns3::Packet> packet;
        ns3::Ipv4Header header;
        std::uint32_t sequence, payload;
        std::uint16_t cell;
    };

    // Segments of a flow that wait for an earlier one.
    struct Sequence
    {
        bool known = false;
        std::uint32_t next = 0;
        std::uint16_t cell = 0;                // of what precedes `next`
        std::int64_t since = 0, mean_wait = 0; // ns, for what precedes a flowcell: the beginning of the last one, and the mean
        std::map<std::uint32_t, Segment> held;
        ns3::EventId timer;
    };

    // Pass a segment to TCP in sequence, or after `patience` ns.
    void Resequence(const Flow& flow, Segment segment, std::int64_t patience);

    // Return whether a segment waits for none: it is the next one, or what is missing before it is lost, since it had the same path.
    bool IsDue(const Sequence& its, const Segment& segment) const;
    void Release(Sequence& its, bool all);

    Fabric* m_fabric = nullptr;
    Host m_host = 0;
    std::uint32_t m_burst = 1;
    std::int64_t m_burst_wait = 0;
    std::unordered_map<const Flow*, Burst> m_bursts;
    std::unique_ptr<Shim> m_shim; // null without MCS
    std::unique_ptr<Plb> m_plb;   // null without PLB
    std::unique_ptr<Reps> m_reps; // null without REPS
    std::unique_ptr<Skips> m_skips; // null without skip counters
    std::unique_ptr<Gate> m_gate; // null without CFR
    std::unique_ptr<Prober> m_prober; // null without probes
    std::map<std::pair<Host, Label>, std::uint32_t> m_answers; // to probes of hosts, by path
    std::function<void(std::int64_t)> m_on_round_trip;
    ns3::Ptr<ns3::TcpL4Protocol> m_tcp;
    ns3::Ptr<ns3::Ipv4Interface> m_interface;
    std::unordered_map<std::uint64_t, Flow> m_flows; // by destination and ports
    std::unordered_map<std::uint16_t, TransferResult*> m_transfers;
    std::unordered_map<const Flow*, Sequence> m_sequences; // of received flows
};

} // namespace sopa
