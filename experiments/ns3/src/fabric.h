// Links and switches. Every hop of a packet is one event.
#pragma once

#include "bad_links.h"
#include "clos.h"
#include "flow.h"
#include "settings.h"

#include "ns3/event-impl.h"

#include "ns3/packet.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace sopa
{

class PathSelector;
class Fabric;

constexpr LinkId NO_LINK = UINT32_MAX;
constexpr std::uint16_t TRIMMED_BYTES = 64; // of a packet without its data

// The ECN field of a packet (RFC 3168).
enum class Ecn : std::uint8_t
{
    NOT_CAPABLE = 0,
    CAPABLE = 2,
    MARKED = 3
};

// Where a queue has cut a packet's data off. At the last hop all paths of a flow meet.
enum class Cut : std::uint8_t
{
    NOT,
    ON_PATH,
    LAST_HOP
};

// A packet in flight between two hosts: the event of its next arrival and the fields that switches read.
class InFlightPacket : public ns3::EventImpl
{
  public:
    static void* operator new(std::size_t size);
    static void operator delete(void* place);

    Fabric* fabric = nullptr;
    ns3::Ptr<ns3::Packet> packet;
    Flow* flow = nullptr;     // owned by the sending host
    std::int64_t sent = 0;    // ns, when the first bit left the sending host
    Host source = 0, destination = 0;
    LinkId next = NO_LINK;    // after the next arrival, if known in advance
    std::uint16_t bytes = 0;  // on the wire
    std::uint8_t up1 = 0xff, up2 = 0xff;
    std::uint8_t stage = 0;
    std::uint16_t channel = 0;
    std::int32_t delay = 0; // that an acknowledgement reports; the path that a switch's message reports
    Ecn ecn = Ecn::NOT_CAPABLE;
    bool urgent = false; // overtakes data
    bool corrupted = false; // the receiver discards it
    Cut cut = Cut::NOT;

    // Prefetch the memory that the next arrival accesses.
    void Prefetch() const;

  private:
    void Notify() override;
};

// A drop-tail queue and the wire behind it. The queue is FIFO, so the departure time of a packet is computed on arrival. A packet
// touches one cache line of the link and one or two of the ring.
class alignas(64) Link
{
  public:
    void Configure(std::uint64_t rate, std::int64_t delay, std::uint32_t capacity);

    // Change the rate. What is in the queue leaves as before.
    void SetRate(std::uint64_t rate) { m_rate = rate; }

    // Enqueue a packet. Return its arrival time at the other end in ns, or -1 if the queue is full or the link is down.
    std::int64_t Enter(std::int64_t now, std::uint32_t bytes);

    // The same for a packet that overtakes all others: it does not wait, and what enters after it waits for it.
    std::int64_t Overtake(std::int64_t now, std::uint32_t bytes);

    // bit/s
    std::uint64_t rate() const { return m_rate; }

    // Return the time in ns from the first bit at this end to the last bit at the other end.
    std::int64_t Transit(std::uint32_t bytes) const { return Serialization(bytes) + m_delay; }

    // Return the number of packets in the queue, including the one on the wire.
    std::uint32_t Length(std::int64_t now);

    // Mark packets that find more than so many in the queue, the one on the wire included (DCTCP, SIGCOMM 2010, section 3.1).
    void MarkAbove(std::uint32_t packets) { m_marking = packets; }

    // Mark packets that find more than so many bytes in the queue, the rest of that on the wire included.
    void MarkAboveBytes(std::uint32_t bytes) { m_marking_ns = std::min<std::int64_t>(Serialization(bytes), UINT32_MAX); }

    // Return true if the packet that entered last is to be marked.
    bool Marks() const { return m_marks; }

    // Return the largest number of packets that were in the queue together, the one on the wire included.
    std::uint32_t longest() const { return m_longest; }

    bool up = true, bad = false; // bad: Fabric::Spoil has a fault for it
    std::uint32_t dropped = 0;

  private:
    std::int64_t Serialization(std::uint32_t bytes) const
    {
        return static_cast<std::int64_t>(8ull * bytes * 1'000'000'000 / m_rate);
    }
    void Forget(std::int64_t now);

    std::uint64_t m_rate = 1;
    std::int64_t m_delay = 0, m_free = 0;         // when the wire becomes idle
    std::unique_ptr<std::int64_t[]> m_departures; // a ring
    std::uint32_t m_size = 0, m_first = 0, m_count = 0;
    std::uint32_t m_marking = UINT32_MAX, m_marking_ns = 0;
    std::uint16_t m_longest = 0; // up to UINT16_MAX
    bool m_marks = false;        // the packet that entered last
};

static_assert(sizeof(Link) == 64, "a packet touches one cache line of a link");

// The consumer of packets to a host.
class Receiver
{
  public:
    virtual ~Receiver() = default;
    virtual void Receive(InFlightPacket& in_flight) = 0;
};

class Fabric
{
  public:
    Fabric(const Settings& settings, std::unique_ptr<PathSelector> selector);
    ~Fabric();

    // Send a packet from a host. It is dropped if the queue of the host is full.
    void Send(Flow& flow, ns3::Ptr<ns3::Packet> packet, std::uint32_t bytes, std::uint8_t up1, std::uint8_t up2, Ecn ecn,
              bool urgent = false);

    // Send a message of a switch: from the edge switch of a flow's source to that of its destination, before all data.
    void SendFromEdge(Flow& flow, std::uint16_t bytes, std::uint16_t channel, std::int32_t path);

    // Send a packet from its last switch to its host.
    void Deliver(InFlightPacket& in_flight);

    // Take down a link (e0_0-a0_1) or all links of a switch (a0_0). Throws std::invalid_argument for an unknown name.
    void Fail(const std::string& name);

    // Let one direction of a link become bad from now on.
    void Spoil(const Settings& settings, const BadLink& how);

    // Return what the direction of a link has lost and corrupted so far.
    const BadLink& SpoiltBy(LinkId id) const
    {
        static const BadLink HEALTHY;
        const auto found = m_bad.find(id);
        return found == m_bad.end() ? HEALTHY : found->second;
    }

    PathSelector& selector() { return *m_selector; }
    Link& link(LinkId id) { return m_links[id]; }
    std::uint64_t hops() const { return m_hops; }
    std::uint64_t unroutable() const { return m_unroutable; } // packets without a remaining path
    std::uint64_t trimmed() const { return m_trimmed; }

    const Clos tree;
    std::vector<Receiver*> receivers; // by host

  private:
    friend class InFlightPacket;
    void Configure(const Settings& settings, LinkId id, std::uint64_t rate);
    void MarkFrom(const Settings& settings, LinkId id);
    LinkId Next(const InFlightPacket& in_flight) const;
    void Arrive(InFlightPacket& in_flight);
    void Forward(InFlightPacket& in_flight, LinkId link, std::uint8_t stage);
    void Trim(InFlightPacket& in_flight, LinkId link, std::int64_t now);

    std::vector<Link> m_links;
    std::map<LinkId, BadLink> m_bad;
    std::unique_ptr<PathSelector> m_selector;
    std::uint64_t m_hops = 0, m_unroutable = 0, m_trimmed = 0;
    bool m_has_last_switch;
    std::uint32_t m_trim;
    bool m_acks_first;
};

} // namespace sopa
