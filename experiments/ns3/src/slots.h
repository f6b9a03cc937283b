// Congestion-free routing (docs/cfr.md): hosts hold data until the slots that an arbiter gives them. The arbiter is the library of
// sopa_ryu/arbiter/allocator, the same sources that the service has.
#pragma once

#include "fabric.h"
#include "settings.h"

#include "arbiter.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

namespace sopa
{

class Gate;

// The arbiter as hosts of the simulation reach it: demands and grants take `arbiter-delay` each.
class SlotArbiter
{
  public:
    SlotArbiter(const Settings& settings, Fabric& fabric, std::uint32_t segment);

    // Begin to allocate, a batch of slots at a time.
    void Start();

    void Add(Gate& gate) { m_gates.push_back(&gate); }

    // Take the bytes of packets that a host has for another one, those of slots that it still waits for included.
    void Demand(Host source, Host destination, std::uint64_t bytes);

    // Return the bytes of packets with so many bytes of data.
    std::uint64_t PacketBytes(std::uint64_t payload) const;

    bool knows_flows() const { return m_knows_flows; }
    bool knows_sockets() const { return m_knows_sockets; }

  private:
    struct Pending
    {
        std::int64_t begins; // ns
        std::uint64_t bytes;
    };

    // What is left to grant from one host to another, and the slots that have been granted since the host's last report.
    struct Pair
    {
        std::uint64_t left = 0;
        std::deque<Pending> pending;
    };

    struct Report
    {
        std::int64_t at; // ns, when the host sent it
        Host source, destination;
        std::uint64_t bytes;
    };

    void Batch();
    void Apply(const Report& report);
    Pair& PairOf(Host source, Host destination);
    allocator::Fabric Capacities();

    // Return the time in ns that a host waits within a grid of slots, so that packets of a slot reach the edge switches of their
    // destinations together, by however many links.
    std::int64_t Lag(Host source, Host destination) const;

    Fabric& m_fabric;
    const std::uint32_t m_packet, m_segment;
    const std::uint64_t m_host_rate, m_cell; // bit/s; bytes of a slot
    const std::int64_t m_slot, m_delay;      // ns
    const bool m_knows_flows, m_knows_sockets;
    std::int64_t m_levels[3]; // ns from one end of a link to the other, by Clos::LevelOf
    std::unique_ptr<allocator::Arbiter> m_arbiter;
    std::vector<Gate*> m_gates; // by host
    std::deque<Report> m_reports;
    std::unordered_map<std::uint64_t, Pair> m_pairs; // by source and destination
    std::uint64_t m_wanting = 0;                     // pairs with something left
    std::uint32_t m_version = 0;                     // of the failures that capacities have
};

// The gate of a host. Acknowledgements and what opens and closes connections do not come here.
class Gate
{
  public:
    using Send = std::function<void(Flow&, ns3::Ptr<ns3::Packet>, std::uint8_t, std::uint8_t)>;

    Gate(SlotArbiter& arbiter, Host host, Send send)
        : m_arbiter(arbiter),
          m_host(host),
          m_send(std::move(send))
    {
        arbiter.Add(*this);
    }

    // A transfer begins with so much data, -1 without a size.
    void Begins(Host destination, std::int64_t bytes);

    // An application has passed so much data to TCP, or taken it back.
    void Passed(Host destination, std::int64_t bytes);

    // Hold a segment with so many bytes of data, `is_new` unless it is sent again.
    void Hold(Flow& flow, ns3::Ptr<ns3::Packet> segment, std::uint32_t payload, bool is_new);

    // Return true if data of a flow wait, which what closes its connection does not overtake.
    bool Holds(const Flow& flow) const;

    // A slot begins: send on its path what it has room for.
    void Open(Host destination, std::uint8_t up1, std::uint8_t up2, std::uint64_t room);

  private:
    struct Held
    {
        Flow* flow;
        ns3::Ptr<ns3::Packet> segment;
        std::uint32_t bytes;
    };

    struct Queue
    {
        std::deque<Held> held;
        std::uint64_t bytes = 0;    // of the packets held
        std::int64_t announced = 0; // data that TCP has yet to send
        bool endless = false;       // there is always more
        std::uint64_t reported = 0;
    };

    void Announce(Host destination, std::int64_t bytes);
    void Report(Host destination, Queue& queue, bool always);

    SlotArbiter& m_arbiter;
    const Host m_host;
    const Send m_send;
    std::unordered_map<Host, Queue> m_queues;
};

} // namespace sopa
