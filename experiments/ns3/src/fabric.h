// Links and switches: every hop of a packet is one event.
#pragma once

#include "flow.h"
#include "settings.h"
#include "tree.h"

#include "ns3/event-impl.h"

#include "ns3/packet.h"

#include <memory>
#include <string>
#include <vector>

namespace sopa
{

class Choice;
class Fabric;

constexpr LinkId NO_LINK = UINT32_MAX;

// A packet between two hosts: the event of its next arrival, and what switches look at.
class Flight : public ns3::EventImpl
{
  public:
    static void* operator new(std::size_t size);
    static void operator delete(void* place);

    Fabric* fabric = nullptr;
    ns3::Ptr<ns3::Packet> packet;
    Flow* flow = nullptr;     // known to its sending host; a hop need not look there
    std::int64_t sent = 0;    // ns, when its first bit left its host
    Host source = 0, destination = 0;
    LinkId next = NO_LINK;    // that it will take, if that is known before it arrives
    std::uint16_t bytes = 0;  // on the wire
    std::uint8_t up1 = 0xff, up2 = 0xff;
    std::uint8_t stage = 0;

    // Have what its next arrival will touch brought from memory.
    void Prefetch() const;

  private:
    void Notify() override;
};

// A drop-tail queue and the wire behind it. Nobody looks at a packet in it, so its departure is known when it arrives. All that a
// packet needs of it is in one cache line, and one or two of the ring.
class alignas(64) Link
{
  public:
    void Configure(std::uint64_t rate, std::int64_t delay, std::uint32_t capacity);

    // When a packet that comes now arrives at the other end, in ns; -1 if there is no room for it.
    std::int64_t Enter(std::int64_t now, std::uint32_t bytes);

    // How long a packet takes from its first bit at this end to its last at the other, in ns.
    std::int64_t Transit(std::uint32_t bytes) const { return Serialization(bytes) + m_delay; }

    // Packets in the queue, the one on the wire included.
    std::uint32_t Length(std::int64_t now);

    bool up = true;
    std::uint32_t dropped = 0;

  private:
    std::int64_t Serialization(std::uint32_t bytes) const
    {
        return static_cast<std::int64_t>(8ull * bytes * 1'000'000'000 / m_rate);
    }
    void Forget(std::int64_t now);

    std::uint64_t m_rate = 1;
    std::int64_t m_delay = 0, m_free = 0;         // when the wire is free
    std::unique_ptr<std::int64_t[]> m_departures; // a ring
    std::uint32_t m_size = 0, m_first = 0, m_count = 0;
};

// Whom packets to a host are given to.
class Receiver
{
  public:
    virtual ~Receiver() = default;
    virtual void Receive(Flight& flight) = 0;
};

class Fabric
{
  public:
    Fabric(const Settings& settings, std::unique_ptr<Choice> choice);
    ~Fabric();

    // A host hands a packet over. It is lost if the host's own queue is full.
    void Send(Flow& flow, ns3::Ptr<ns3::Packet> packet, std::uint32_t bytes, std::uint8_t up1, std::uint8_t up2);

    // A link, e0_0-a0_1, or a switch, a0_0, carries nothing from now on. Throws std::invalid_argument.
    void Fail(const std::string& name);

    Choice& choice() { return *m_choice; }
    Link& link(LinkId id) { return m_links[id]; }
    std::uint64_t hops() const { return m_hops; }
    std::uint64_t unroutable() const { return m_unroutable; } // packets to where no way was left

    const Tree tree;
    std::vector<Receiver*> receivers; // by host

  private:
    friend class Flight;
    LinkId Next(const Flight& flight) const;
    void Arrive(Flight& flight);
    void Forward(Flight& flight, LinkId link, std::uint8_t stage);

    std::vector<Link> m_links;
    std::unique_ptr<Choice> m_choice;
    std::uint64_t m_hops = 0, m_unroutable = 0;
};

} // namespace sopa
