// A host's network interface, and its IP layer as far as TCP needs one: it knows its flows, labels their packets, and hands
// them to the fabric. ns-3's own IP layer is there for sockets to bind to; going through it would cost more than TCP itself.
#pragma once

#include "fabric.h"

#include "ns3/channel.h"
#include "ns3/event-id.h"
#include "ns3/ipv4-header.h"
#include "ns3/ipv4-interface.h"
#include "ns3/ipv4-route.h"
#include "ns3/net-device.h"
#include "ns3/node.h"
#include "ns3/tcp-l4-protocol.h"

#include <map>
#include <unordered_map>

namespace sopa
{

class Device : public ns3::NetDevice, public Receiver
{
  public:
    static ns3::TypeId GetTypeId();

    // For a node that has TCP already.
    void Attach(Fabric& fabric, Host host, const Settings& settings);

    void Receive(Flight& flight) override;

    // The interface that TCP is told packets come from.
    void SetInterface(ns3::Ptr<ns3::Ipv4Interface> interface) { m_interface = interface; }

    // Whose data leave from that port.
    void Expect(std::uint16_t port, Reached& transfer) { m_transfers[port] = &transfer; }
    void Forget(std::uint16_t port) { m_transfers.erase(port); }

    void SetIfIndex(const std::uint32_t index) override { m_index = index; }
    std::uint32_t GetIfIndex() const override { return m_index; }
    ns3::Ptr<ns3::Channel> GetChannel() const override { return nullptr; }
    void SetAddress(ns3::Address address) override { m_address = address; }
    ns3::Address GetAddress() const override { return m_address; }
    bool SetMtu(const std::uint16_t mtu) override { return m_mtu = mtu, true; }
    std::uint16_t GetMtu() const override { return m_mtu; }
    bool IsLinkUp() const override { return true; }
    void AddLinkChangeCallback(ns3::Callback<void>) override {}
    bool IsBroadcast() const override { return true; }
    ns3::Address GetBroadcast() const override { return m_address; }
    bool IsMulticast() const override { return false; }
    ns3::Address GetMulticast(ns3::Ipv4Address) const override { return m_address; }
    ns3::Address GetMulticast(ns3::Ipv6Address) const override { return m_address; }
    bool IsBridge() const override { return false; }
    bool IsPointToPoint() const override { return true; }
    bool Send(ns3::Ptr<ns3::Packet>, const ns3::Address&, std::uint16_t) override { return false; }
    bool SendFrom(ns3::Ptr<ns3::Packet>, const ns3::Address&, const ns3::Address&, std::uint16_t) override { return false; }
    ns3::Ptr<ns3::Node> GetNode() const override { return m_node; }
    void SetNode(ns3::Ptr<ns3::Node> node) override { m_node = node; }
    bool NeedsArp() const override { return false; }
    void SetReceiveCallback(ReceiveCallback) override {}
    void SetPromiscReceiveCallback(PromiscReceiveCallback) override {}
    bool SupportsSendFrom() const override { return false; }

  private:
    void SendSegment(ns3::Ptr<ns3::Packet> segment,
                     ns3::Ipv4Address source,
                     ns3::Ipv4Address destination,
                     std::uint8_t protocol,
                     ns3::Ptr<ns3::Ipv4Route> route);
    Flow& FlowOf(std::uint32_t destination, std::uint32_t ports);

    struct Segment
    {
        ns3::Ptr<ns3::Packet> packet;
        ns3::Ipv4Header header;
        std::uint32_t sequence, payload;
    };

    // A flow's segments that wait for one that is missing before them.
    struct Sequence
    {
        bool known = false;
        std::uint32_t next = 0;
        std::map<std::uint32_t, Segment> held;
        ns3::EventId timer;
    };

    // Hand a segment to TCP in its turn, or when patience is over.
    void Resequence(const Flow& flow, Segment segment, std::int64_t patience);
    void Release(Sequence& its, bool all);

    Fabric* m_fabric = nullptr;
    Host m_host = 0;
    std::uint32_t m_overhead = 0;
    ns3::Ptr<ns3::Node> m_node;
    ns3::Address m_address;
    ns3::Ptr<ns3::TcpL4Protocol> m_tcp;
    ns3::Ptr<ns3::Ipv4Interface> m_interface;
    std::uint32_t m_index = 0;
    std::uint16_t m_mtu = 1500;
    std::unordered_map<std::uint64_t, Flow> m_flows; // by destination and ports
    std::unordered_map<std::uint16_t, Reached*> m_transfers;
    std::unordered_map<const Flow*, Sequence> m_sequences; // of flows that arrive here
};

} // namespace sopa
