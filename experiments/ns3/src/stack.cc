#include "stack.h"

#include "ns3/internet-stack-helper.h"
#include "ns3/ipv4-interface-address.h"
#include "ns3/ipv4-l3-protocol.h"
#include "ns3/ipv4-route.h"
#include "ns3/ipv4-routing-helper.h"
#include "ns3/ipv4-routing-protocol.h"

namespace sopa
{

namespace
{

// The routing of a host with one interface: all packets leave through it.
class SingleInterfaceRouting : public ns3::Ipv4RoutingProtocol
{
  public:
    static ns3::TypeId GetTypeId()
    {
        static ns3::TypeId tid = ns3::TypeId("sopa::SingleInterfaceRouting").SetParent<ns3::Ipv4RoutingProtocol>();
        return tid;
    }

    ns3::Ptr<ns3::Ipv4Route> RouteOutput(ns3::Ptr<ns3::Packet>,
                                         const ns3::Ipv4Header& header,
                                         ns3::Ptr<ns3::NetDevice>,
                                         ns3::Socket::SocketErrno& error) override
    {
        error = ns3::Socket::ERROR_NOTERROR;
        if (!m_route || m_route->GetDestination() != header.GetDestination())
        {
            m_route = ns3::Create<ns3::Ipv4Route>();
            m_route->SetDestination(header.GetDestination());
            m_route->SetSource(m_ipv4->GetAddress(1, 0).GetLocal());
            m_route->SetGateway(ns3::Ipv4Address::GetZero());
            m_route->SetOutputDevice(m_ipv4->GetNetDevice(1));
        }
        return m_route;
    }

    // Not used for received packets: the device passes them to TCP directly.
    bool RouteInput(ns3::Ptr<const ns3::Packet>,
                    const ns3::Ipv4Header&,
                    ns3::Ptr<const ns3::NetDevice>,
                    UnicastForwardCallback,
                    MulticastForwardCallback,
                    LocalDeliverCallback,
                    ErrorCallback) override
    {
        return false;
    }

    void NotifyInterfaceUp(std::uint32_t) override {}
    void NotifyInterfaceDown(std::uint32_t) override {}
    void NotifyAddAddress(std::uint32_t, ns3::Ipv4InterfaceAddress) override {}
    void NotifyRemoveAddress(std::uint32_t, ns3::Ipv4InterfaceAddress) override {}
    void SetIpv4(ns3::Ptr<ns3::Ipv4> ipv4) override { m_ipv4 = ipv4; }
    void PrintRoutingTable(ns3::Ptr<ns3::OutputStreamWrapper>, ns3::Time::Unit) const override {}

  private:
    ns3::Ptr<ns3::Ipv4> m_ipv4;
    ns3::Ptr<ns3::Ipv4Route> m_route;
};

class SingleInterfaceRoutingHelper : public ns3::Ipv4RoutingHelper
{
  public:
    SingleInterfaceRoutingHelper* Copy() const override { return new SingleInterfaceRoutingHelper(*this); }
    ns3::Ptr<ns3::Ipv4RoutingProtocol> Create(ns3::Ptr<ns3::Node>) const override { return ns3::CreateObject<SingleInterfaceRouting>(); }
};

} // namespace

ns3::Ptr<Device>
InstallStack(ns3::Ptr<ns3::Node> node, Fabric& fabric, Host host)
{
    ns3::InternetStackHelper stack;
    stack.SetRoutingHelper(SingleInterfaceRoutingHelper());
    stack.SetIpv6StackInstall(false);
    stack.Install(node);
    const auto device = ns3::CreateObject<Device>();
    node->AddDevice(device);
    device->Attach(fabric, host);
    const auto ipv4 = node->GetObject<ns3::Ipv4L3Protocol>();
    const std::uint32_t interface = ipv4->AddInterface(device);
    ipv4->AddAddress(interface,
                     ns3::Ipv4InterfaceAddress(ns3::Ipv4Address(fabric.tree.AddressOf(host)), ns3::Ipv4Mask("255.255.255.255")));
    ipv4->SetUp(interface);
    device->SetInterface(ipv4->GetInterface(interface));
    return device;
}

} // namespace sopa
