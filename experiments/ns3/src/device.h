// The network interface of a host together with the part of an IP layer that TCP needs: it tracks flows, labels their packets and
// sends them into the fabric. ns-3's IP layer exists only for sockets to bind to: passing every packet through it would take more
// processor time than TCP itself.
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

    // Connect to the fabric. The node must have TCP.
    void Attach(Fabric& fabric, Host host);

    void Receive(InFlightPacket& in_flight) override;

    // Set the interface that is passed to TCP with received packets.
    void SetInterface(ns3::Ptr<ns3::Ipv4Interface> interface) { m_interface = interface; }

    // Assign the data that leave from a source port to a transfer.
    void Expect(std::uint16_t port, TransferResult& transfer) { m_transfers[port] = &transfer; }

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

    // Segments of a flow that wait for an earlier one.
    struct Sequence
    {
        bool known = false;
        std::uint32_t next = 0;
        std::map<std::uint32_t, Segment> held;
        ns3::EventId timer;
    };

    // Pass a segment to TCP in sequence, or after `patience` ns.
    void Resequence(const Flow& flow, Segment segment, std::int64_t patience);
    void Release(Sequence& its, bool all);

    Fabric* m_fabric = nullptr;
    Host m_host = 0;
    ns3::Ptr<ns3::Node> m_node;
    ns3::Address m_address;
    ns3::Ptr<ns3::TcpL4Protocol> m_tcp;
    ns3::Ptr<ns3::Ipv4Interface> m_interface;
    std::uint32_t m_index = 0;
    std::uint16_t m_mtu = 1500;
    std::unordered_map<std::uint64_t, Flow> m_flows; // by destination and ports
    std::unordered_map<std::uint16_t, TransferResult*> m_transfers;
    std::unordered_map<const Flow*, Sequence> m_sequences; // of received flows
};

} // namespace sopa
