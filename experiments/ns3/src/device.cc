#include "device.h"

#include "choice.h"
#include "transfer.h"

#include "ns3/header.h"
#include "ns3/ipv4-l3-protocol.h"
#include "ns3/mac48-address.h"
#include "ns3/simulator.h"

namespace sopa
{

namespace
{

constexpr std::uint32_t IP_BYTES = 20, TCP_BYTES = 20;
constexpr std::uint8_t OPTION_TYPE = 0x9e, OPTION_LENGTH = 4;

std::uint32_t
Word(const std::uint8_t* at)
{
    return std::uint32_t(at[0]) << 24 | std::uint32_t(at[1]) << 16 | std::uint32_t(at[2]) << 8 | at[3];
}

// An IPv4 header of 24 bytes: ns-3's own one with the option 0x9e 0x04 up1 up2 behind it (DESIGN 3). ns-3's Ipv4Header cannot
// hold one, and skips it when it reads.
class LabelledHeader : public ns3::Header
{
  public:
    LabelledHeader() = default;

    LabelledHeader(const std::uint8_t* plain, std::uint8_t up1, std::uint8_t up2)
    {
        std::copy(plain, plain + IP_BYTES, m_bytes);
        const std::uint32_t total = (plain[2] << 8 | plain[3]) + OPTION_LENGTH;
        m_bytes[0] = 0x46;
        m_bytes[2] = total >> 8;
        m_bytes[3] = total & 0xff;
        m_bytes[20] = OPTION_TYPE;
        m_bytes[21] = OPTION_LENGTH;
        m_bytes[22] = up1;
        m_bytes[23] = up2;
    }

    static ns3::TypeId GetTypeId()
    {
        static ns3::TypeId tid =
            ns3::TypeId("sopa::LabelledHeader").SetParent<ns3::Header>().AddConstructor<LabelledHeader>();
        return tid;
    }

    ns3::TypeId GetInstanceTypeId() const override { return GetTypeId(); }
    std::uint32_t GetSerializedSize() const override { return sizeof m_bytes; }
    void Serialize(ns3::Buffer::Iterator start) const override { start.Write(m_bytes, sizeof m_bytes); }
    std::uint32_t Deserialize(ns3::Buffer::Iterator start) override
    {
        start.Read(m_bytes, sizeof m_bytes);
        return sizeof m_bytes;
    }
    void Print(std::ostream& stream) const override { stream << "path " << +m_bytes[22] << " " << +m_bytes[23]; }

  private:
    std::uint8_t m_bytes[IP_BYTES + OPTION_LENGTH] = {};
};

} // namespace

NS_OBJECT_ENSURE_REGISTERED(Device);

ns3::TypeId
Device::GetTypeId()
{
    static ns3::TypeId tid = ns3::TypeId("sopa::Device").SetParent<ns3::NetDevice>().AddConstructor<Device>();
    return tid;
}

void
Device::Attach(Fabric& fabric, Host host, const Settings& settings)
{
    m_fabric = &fabric;
    m_host = host;
    m_overhead = settings.frame_overhead;
    m_address = ns3::Mac48Address::Allocate();
    fabric.receivers[host] = [this](Flight& flight) { Receive(flight); };
}

Flow&
Device::FlowOf(const std::uint8_t* header)
{
    const std::uint32_t address = Word(header + 16), ports = Word(header + IP_BYTES);
    const std::uint64_t key = std::uint64_t(address) << 32 | ports;
    const auto [found, made] = m_flows.try_emplace(key);
    Flow& flow = found->second;
    if (made)
    {
        flow.source = m_host;
        flow.destination = m_fabric->tree.HostOf(address);
        flow.hash = (key ^ std::uint64_t(Word(header + 12)) << 20) * 0x9e3779b97f4a7c15ull;
        const auto transfer = m_transfers.find(ports >> 16);
        flow.transfer = (ports & 0xffff) == PORT && transfer != m_transfers.end() ? transfer->second : nullptr;
        m_fabric->choice().Begin(flow);
    }
    return flow;
}

bool
Device::Send(ns3::Ptr<ns3::Packet> packet, const ns3::Address&, std::uint16_t)
{
    std::uint8_t header[IP_BYTES + TCP_BYTES];
    packet->CopyData(header, sizeof header);
    Flow& flow = FlowOf(header);
    if (flow.transfer)
    {
        const std::uint32_t payload = packet->GetSize() - IP_BYTES - (header[IP_BYTES + 12] >> 4) * 4;
        if (payload)
        {
            flow.transfer->Sent(Word(header + IP_BYTES + 4), payload);
        }
    }
    std::uint8_t up1 = 0xff, up2 = 0xff;
    Choice& choice = m_fabric->choice();
    choice.AtHost(flow, up1, up2);
    if (choice.labels())
    {
        packet->RemoveAtStart(IP_BYTES);
        packet->AddHeader(LabelledHeader(header, up1, up2));
    }
    m_fabric->Send(flow, packet, packet->GetSize() + m_overhead, up1, up2);
    return true;
}

void
Device::Receive(Flight& flight)
{
    if (Reached* transfer = flight.flow->transfer)
    {
        std::uint8_t header[IP_BYTES + OPTION_LENGTH + TCP_BYTES];
        flight.packet->CopyData(header, sizeof header);
        const std::uint32_t ip = (header[0] & 15) * 4;
        const std::uint32_t payload = flight.packet->GetSize() - ip - (header[ip + 12] >> 4) * 4;
        if (payload)
        {
            const bool labelled = ip > IP_BYTES;
            transfer->Arrived(Word(header + ip + 4), payload, flight.sent, labelled ? header[22] : flight.up1,
                              labelled ? header[23] : flight.up2);
        }
    }
    m_receive(this, flight.packet, ns3::Ipv4L3Protocol::PROT_NUMBER, m_address);
}

} // namespace sopa
