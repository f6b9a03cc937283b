#include "device.h"

#include "path_selector.h"
#include "transfer.h"

#include "ns3/header.h"
#include "ns3/ipv4-header.h"
#include "ns3/mac48-address.h"
#include "ns3/simulator.h"
#include "ns3/socket.h"

#include <algorithm>

namespace sopa
{

namespace
{

constexpr std::uint32_t IP_BYTES = 20, TCP_BYTES = 20, MAX_IP_BYTES = 24;
constexpr std::uint32_t MAX_MCO_BYTES = McoBytes(MAX_CHANNELS);
constexpr std::uint32_t ECHO_BYTES = 40; // as much as an acknowledgement
constexpr std::uint32_t PING_BYTES = 44; // 64 with the IP header
// Presto waits twice the moving average of the waits before (its alpha); the last one has an eighth, as in TCP.
constexpr std::int64_t PRESTO_WAITS = 2, PRESTO_MEAN = 8;
constexpr std::uint32_t PING_PORT = 7, PROBE_PORT = 862;
constexpr std::uint8_t OPTION_TYPE = 0x9e, OPTION_LENGTH = 4, TTL = 64, TCP = 6, TCP_ECE = 0x40;

std::uint32_t
Load32(const std::uint8_t* at)
{
    return std::uint32_t(at[0]) << 24 | std::uint32_t(at[1]) << 16 | std::uint32_t(at[2]) << 8 | at[3];
}

void
Store32(std::uint8_t* at, std::uint32_t word)
{
    for (int byte = 0; byte < 4; ++byte)
    {
        at[byte] = word >> (24 - 8 * byte) & 0xff;
    }
}

// An IPv4 header of 20 bytes, or of 24 with the SOPA option 0x9e 0x04 up1 up2 (docs/wire-format.md). ns-3's Ipv4Header does not
// support options.
class IpHeader : public ns3::Header
{
  public:
    IpHeader() = default;

    IpHeader(std::uint32_t source, std::uint32_t destination, std::uint32_t payload)
    {
        const std::uint32_t total = IP_BYTES + payload;
        m_bytes[0] = 0x45;
        m_bytes[2] = total >> 8;
        m_bytes[3] = total & 0xff;
        m_bytes[8] = TTL;
        m_bytes[9] = TCP;
        Store32(m_bytes + 12, source);
        Store32(m_bytes + 16, destination);
    }

    void Label(std::uint8_t up1, std::uint8_t up2)
    {
        const std::uint32_t total = (m_bytes[2] << 8 | m_bytes[3]) + OPTION_LENGTH;
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
        static ns3::TypeId tid = ns3::TypeId("sopa::IpHeader").SetParent<ns3::Header>().AddConstructor<IpHeader>();
        return tid;
    }

    ns3::TypeId GetInstanceTypeId() const override { return GetTypeId(); }
    std::uint32_t GetSerializedSize() const override { return (m_bytes[0] & 15) * 4; }
    void Serialize(ns3::Buffer::Iterator start) const override { start.Write(m_bytes, GetSerializedSize()); }
    std::uint32_t Deserialize(ns3::Buffer::Iterator start) override
    {
        m_bytes[0] = start.ReadU8();
        start.Read(m_bytes + 1, GetSerializedSize() - 1);
        return GetSerializedSize();
    }
    void Print(std::ostream& stream) const override { stream << "path " << +m_bytes[22] << " " << +m_bytes[23]; }

  private:
    std::uint8_t m_bytes[MAX_IP_BYTES] = {};
};

// Return the ECN field that TCP has asked for.
Ecn
EcnOf(const ns3::Packet& segment)
{
    ns3::SocketIpTosTag tag;
    const bool capable = segment.PeekPacketTag(tag) && (tag.GetTos() & 3) != ns3::Ipv4Header::ECN_NotECT;
    return capable ? Ecn::CAPABLE : Ecn::NOT_CAPABLE;
}

} // namespace

NS_OBJECT_ENSURE_REGISTERED(Device);

ns3::TypeId
Device::GetTypeId()
{
    static ns3::TypeId tid = ns3::TypeId("sopa::Device").SetParent<ns3::SimpleNetDevice>().AddConstructor<Device>();
    return tid;
}

void
Device::Attach(Fabric& fabric, Host host)
{
    m_fabric = &fabric;
    m_host = host;
    SetAddress(ns3::Mac48Address::Allocate());
    SetMtu(1500);
    m_tcp = GetNode()->GetObject<ns3::TcpL4Protocol>();
    m_tcp->SetDownTarget(ns3::MakeCallback(&Device::SendSegment, this));
    fabric.receivers[host] = this;
}

Flow&
Device::FlowOf(std::uint32_t destination, std::uint32_t ports)
{
    const std::uint64_t key = std::uint64_t(destination) << 32 | ports;
    const auto [found, made] = m_flows.try_emplace(key);
    Flow& flow = found->second;
    if (made)
    {
        flow.source = m_host;
        flow.destination = m_fabric->tree.HostOf(destination);
        flow.ports = ports;
        flow.hash = (key ^ std::uint64_t(m_fabric->tree.AddressOf(m_host)) << 20) * HASH_FACTOR;
        const auto transfer = m_transfers.find(ports >> 16);
        flow.transfer = (ports & 0xffff) == PORT && transfer != m_transfers.end() ? transfer->second : nullptr;
        m_fabric->selector().Begin(flow);
    }
    return flow;
}

void
Device::SendSegment(ns3::Ptr<ns3::Packet> segment,
                    ns3::Ipv4Address,
                    ns3::Ipv4Address destination,
                    std::uint8_t,
                    ns3::Ptr<ns3::Ipv4Route>)
{
    std::uint8_t tcp[TCP_BYTES];
    segment->CopyData(tcp, sizeof tcp);
    Flow& flow = FlowOf(destination.Get(), Load32(tcp));
    const std::uint32_t payload = segment->GetSize() - (tcp[12] >> 4) * 4;
    const bool is_new = flow.transfer && payload && flow.transfer->Sent(Load32(tcp + 4), payload);
    if (m_plb && payload)
    {
        m_plb->Sent(flow, Load32(tcp + 4) + payload);
    }
    if (m_reps)
    {
        flow.channel = payload ? m_reps->Next(flow) : m_reps->Random();
    }
    if (m_skips)
    {
        flow.capable = payload > 0;
    }
    if (m_gate && (payload || m_gate->Holds(flow)))
    {
        m_gate->Hold(flow, segment, payload, is_new);
    }
    else if (m_burst > 1)
    {
        Gather(flow, segment, is_new ? payload : 0);
    }
    else
    {
        Send(flow, {segment});
    }
}

void
Device::Gather(Flow& flow, ns3::Ptr<ns3::Packet> segment, std::uint32_t payload)
{
    Burst& burst = m_bursts[&flow];
    burst.held.push_back(segment);
    const std::uint32_t window = !payload ? 0 : m_shim ? std::min(flow.transfer->window, m_shim->Limit(flow)) : flow.transfer->window;
    const std::uint32_t third = payload ? window / payload / 3 : 0;
    if (burst.held.size() >= std::min(m_burst, third))
    {
        Release(flow, burst);
    }
    else if (!burst.timer.IsRunning())
    {
        burst.timer = ns3::Simulator::Schedule(ns3::TimeStep(m_burst_wait), [this, &flow, &burst] { Release(flow, burst); });
    }
}

void
Device::Release(Flow& flow, Burst& burst)
{
    burst.timer.Cancel();
    Send(flow, burst.held);
    burst.held.clear();
}

void
Device::Send(Flow& flow, const std::vector<ns3::Ptr<ns3::Packet>>& segments)
{
    if (!m_shim)
    {
        Transmit(flow, segments);
    }
    else if (segments.size() == 1)
    {
        if (m_shim->Send(flow, segments))
        {
            Transmit(flow, segments);
        }
    }
    else
    {
        for (const auto& one : Shim::SuperPackets(segments))
        {
            if (m_shim->Send(flow, one))
            {
                Transmit(flow, one);
            }
        }
    }
}

void
Device::Transmit(Flow& flow, const std::vector<ns3::Ptr<ns3::Packet>>& segments)
{
    std::uint8_t up1 = 0xff, up2 = 0xff;
    PathSelector& selector = m_fabric->selector();
    std::uint32_t bytes = 0;
    for (const auto& segment : segments)
    {
        bytes += segment->GetSize();
    }
    selector.AtHost(flow, bytes, up1, up2);
    if (m_skips && flow.capable && selector.labels(flow))
    {
        Skip(flow, *segments.front(), up1, up2);
    }
    if (m_prober && flow.message == Message::SEGMENT && selector.labels(flow))
    {
        PassOver(flow, bytes, up1, up2);
        for (const auto& segment : segments)
        {
            std::uint8_t tcp[TCP_BYTES];
            segment->CopyData(tcp, sizeof tcp);
            m_prober->Sent(flow, {up1, up2}, Load32(tcp + 4), segment->GetSize() - (tcp[12] >> 4) * 4);
        }
    }
    for (const auto& segment : segments)
    {
        SendOn(flow, segment, up1, up2);
    }
}

void
Device::SendOn(Flow& flow, ns3::Ptr<ns3::Packet> segment, std::uint8_t up1, std::uint8_t up2)
{
    const Clos& tree = m_fabric->tree;
    const PathSelector& selector = m_fabric->selector();
    // The shim and skip counters send data as capable of ECN, whatever TCP does.
    const Ecn ecn = m_shim || m_skips ? flow.capable ? Ecn::CAPABLE : Ecn::NOT_CAPABLE : EcnOf(*segment);
    IpHeader header(tree.AddressOf(flow.source), tree.AddressOf(flow.destination), segment->GetSize());
    if (selector.labels(flow))
    {
        header.Label(up1, up2);
    }
    segment->AddHeader(header);
    m_fabric->Send(flow, segment, segment->GetSize() + selector.outer(), up1, up2, ecn);
}

void
Device::SetGate(SlotArbiter& arbiter)
{
    m_gate = std::make_unique<Gate>(
        arbiter, m_host, [this](Flow& flow, ns3::Ptr<ns3::Packet> segment, std::uint8_t up1, std::uint8_t up2) {
            const bool labels = m_fabric->selector().labels(flow); // if not, the edge switch chooses
            SendOn(flow, segment, labels ? up1 : 0xff, labels ? up2 : 0xff);
        });
}

bool
Device::CanProbe() const
{
    Flow flow{};
    flow.source = m_host;
    return m_fabric->selector().labels(flow);
}

void
Device::SetProber(std::uint64_t seed)
{
    m_prober = std::make_unique<Prober>(
        m_fabric->tree, m_host, seed,
        [this](Host destination, Label up, std::uint32_t number) { SendProbe(destination, Message::PROBE, up, number, 0); },
        [this](Host destination) {
            Flow& flow = FlowOf(m_fabric->tree.AddressOf(destination), PROBE_PORT << 16 | static_cast<std::uint32_t>(Message::PROBE));
            std::vector<Label> distinct(m_fabric->selector().CandidatesOf(flow).all);
            std::sort(distinct.begin(), distinct.end()); // a path of more weight is there several times
            distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
            return distinct;
        });
    m_prober->Start();
}

void
Device::Skip(Flow& flow, ns3::Packet& segment, std::uint8_t& up1, std::uint8_t& up2)
{
    PathSelector& selector = m_fabric->selector();
    while (m_skips->Passes(flow, {up1, up2}))
    {
        selector.AtHost(flow, 0, up1, up2);
    }
    std::uint8_t tcp[TCP_BYTES];
    segment.CopyData(tcp, sizeof tcp);
    const std::uint32_t sequence = Load32(tcp + 4), end = sequence + segment.GetSize() - (tcp[12] >> 4) * 4;
    m_skips->Sent(flow, sequence, end, {up1, up2}, flow.transfer ? flow.transfer->timeouts : 0);
}

void
Device::PassOver(Flow& flow, std::uint32_t bytes, std::uint8_t& up1, std::uint8_t& up2)
{
    PathSelector& selector = m_fabric->selector();
    for (auto left = selector.CandidatesOf(flow).all.size(); left && m_prober->Avoids(flow.destination, {up1, up2}); --left)
    {
        selector.AtHost(flow, bytes, up1, up2);
    }
}

void
Device::SendProbe(Host destination, Message message, Label up, std::uint32_t number, std::uint32_t answers)
{
    Flow& flow = FlowOf(m_fabric->tree.AddressOf(destination), PROBE_PORT << 16 | static_cast<std::uint32_t>(message));
    flow.message = message;
    std::uint8_t bytes[8];
    Store32(bytes, number);
    Store32(bytes + 4, answers);
    m_fabric->Send(flow, ns3::Create<ns3::Packet>(bytes, sizeof bytes), PROBE_BYTES, up.first, up.second, Ecn::NOT_CAPABLE, true);
}

void
Device::ReceiveProbe(const InFlightPacket& in_flight)
{
    std::uint8_t bytes[8];
    in_flight.packet->CopyData(bytes, sizeof bytes);
    const Label up{in_flight.up1, in_flight.up2};
    if (in_flight.flow->message == Message::PROBE)
    {
        SendProbe(in_flight.source, Message::PROBE_ANSWER, up, Load32(bytes), ++m_answers[{in_flight.source, up}]);
    }
    else if (m_prober)
    {
        m_prober->Answered(in_flight.source, up, Load32(bytes), Load32(bytes + 4));
    }
}

void
Device::SendPing(Host destination)
{
    SendMessage(destination, Message::PING, ns3::Simulator::Now().GetTimeStep());
}

void
Device::SendMessage(Host destination, Message message, std::int64_t time)
{
    Flow& flow = FlowOf(m_fabric->tree.AddressOf(destination), PING_PORT << 16 | static_cast<std::uint32_t>(message));
    flow.message = message;
    std::uint8_t bytes[PING_BYTES] = {};
    Store32(bytes, static_cast<std::uint64_t>(time) >> 32);
    Store32(bytes + 4, static_cast<std::uint32_t>(time));
    Transmit(flow, {ns3::Create<ns3::Packet>(bytes, PING_BYTES)});
}

void
Device::ReceiveMessage(const InFlightPacket& in_flight)
{
    std::uint8_t bytes[MAX_IP_BYTES + 8];
    in_flight.packet->CopyData(bytes, sizeof bytes);
    const std::uint8_t* const sent = bytes + (bytes[0] & 15) * 4;
    const auto time = static_cast<std::int64_t>(std::uint64_t(Load32(sent)) << 32 | Load32(sent + 4));
    if (in_flight.flow->message == Message::PING)
    {
        SendMessage(in_flight.source, Message::ANSWER, time);
    }
    else
    {
        m_on_round_trip(ns3::Simulator::Now().GetTimeStep() - time);
    }
}

void
Device::Receive(InFlightPacket& in_flight)
{
    if (in_flight.corrupted)
    {
        return; // its checksum is wrong
    }
    if (in_flight.flow->message == Message::PROBE || in_flight.flow->message == Message::PROBE_ANSWER)
    {
        return ReceiveProbe(in_flight);
    }
    if (in_flight.flow->message != Message::SEGMENT)
    {
        return ReceiveMessage(in_flight);
    }
    ns3::Packet& packet = *in_flight.packet;
    if ((m_reps || m_skips || in_flight.urgent) && ReceiveEcho(packet))
    {
        return;
    }
    std::uint8_t bytes[MAX_IP_BYTES + MAX_MCO_BYTES + TCP_BYTES];
    packet.CopyData(bytes, sizeof bytes);
    const std::uint32_t ip = (bytes[0] & 15) * 4, with_mco = packet.GetSize();
    const bool marked = in_flight.ecn == Ecn::MARKED;
    packet.RemoveAtStart(ip);
    if (m_shim)
    {
        const std::uint32_t ports = Load32(bytes + ip + m_shim->bytes());
        m_shim->Receive(Back(Load32(bytes + 12), ports), packet, marked);
    }
    const std::uint8_t* const tcp = bytes + (with_mco - packet.GetSize());
    if (in_flight.cut != Cut::NOT)
    {
        return SendEcho(Back(Load32(bytes + 12), Load32(tcp)), Load32(tcp), in_flight, Load32(tcp + 4));
    }
    const std::uint32_t payload = packet.GetSize() - (tcp[12] >> 4) * 4;
    if (in_flight.flow->transfer && payload)
    {
        const bool labelled = ip > IP_BYTES;
        in_flight.flow->transfer->Arrived(Load32(tcp + 4), payload, in_flight.sent, labelled ? bytes[22] : in_flight.up1,
                                       labelled ? bytes[23] : in_flight.up2);
    }
    if (payload && in_flight.flow->transfer && in_flight.flow->transfer->on_delay)
    {
        Back(Load32(bytes + 12), Load32(tcp)).delay = static_cast<std::int32_t>(ns3::Simulator::Now().GetTimeStep() - in_flight.sent);
    }
    else if (in_flight.delay)
    {
        if (const TransferResult* const its = Back(Load32(bytes + 12), Load32(tcp)).transfer; its && its->on_delay)
        {
            its->on_delay(in_flight.delay);
        }
    }
    if (m_plb && !payload)
    {
        m_plb->Acknowledged(Back(Load32(bytes + 12), Load32(tcp)), Load32(tcp + 8), tcp[13] & TCP_ECE);
    }
    if (m_skips && !payload)
    {
        m_skips->Acknowledged(Back(Load32(bytes + 12), Load32(tcp)), Load32(tcp + 8));
    }
    if (payload && (m_reps || (m_skips && marked)))
    {
        SendEcho(Back(Load32(bytes + 12), Load32(tcp)), Load32(tcp), in_flight);
    }
    ns3::Ipv4Header header;
    header.SetSource(ns3::Ipv4Address(Load32(bytes + 12)));
    header.SetDestination(ns3::Ipv4Address(Load32(bytes + 16)));
    header.SetProtocol(bytes[9]);
    header.SetTtl(bytes[8]);
    header.SetPayloadSize(packet.GetSize());
    if (in_flight.ecn != Ecn::NOT_CAPABLE && !m_shim && !m_skips)
    {
        header.SetEcn(marked ? ns3::Ipv4Header::ECN_CE : ns3::Ipv4Header::ECN_ECT0);
    }
    const std::int64_t patience = m_fabric->selector().resequencing();
    if (patience && payload)
    {
        Resequence(*in_flight.flow, {in_flight.packet, header, Load32(tcp + 4), payload, in_flight.channel}, patience);
    }
    else
    {
        m_tcp->Receive(in_flight.packet, header, m_interface);
    }
}

void
Device::SendEcho(Flow& back, std::uint32_t ports, const InFlightPacket& in_flight, std::uint32_t sequence)
{
    std::uint8_t bytes[ECHO_BYTES] = {}; // the first byte of an IP packet is never 0
    bytes[1] = in_flight.ecn == Ecn::MARKED;
    bytes[2] = static_cast<std::uint8_t>(in_flight.cut);
    Store32(bytes + 4, m_reps ? in_flight.channel : in_flight.up1 << 8 | in_flight.up2);
    Store32(bytes + 8, ports);
    Store32(bytes + 12, m_fabric->tree.AddressOf(m_host));
    Store32(bytes + 16, sequence);
    std::uint8_t up1 = 0xff, up2 = 0xff;
    if (m_reps)
    {
        back.channel = m_reps->Random();
    }
    else
    {
        m_fabric->selector().AtHost(back, ECHO_BYTES, up1, up2);
    }
    const bool urgent = in_flight.cut != Cut::NOT;
    m_fabric->Send(back, ns3::Create<ns3::Packet>(bytes, ECHO_BYTES), ECHO_BYTES, up1, up2, Ecn::NOT_CAPABLE, urgent);
}

bool
Device::ReceiveEcho(const ns3::Packet& packet)
{
    std::uint8_t bytes[20];
    packet.CopyData(bytes, sizeof bytes);
    if (bytes[0])
    {
        return false;
    }
    const std::uint32_t number = Load32(bytes + 4);
    const Label path(number >> 8, number & 0xff);
    const Flow& flow = FlowOf(Load32(bytes + 12), Load32(bytes + 8));
    const auto cut = static_cast<Cut>(bytes[2]);
    if (m_reps)
    {
        m_reps->Echoed(flow, number, bytes[1] || cut != Cut::NOT);
    }
    else if (m_skips && cut == Cut::ON_PATH)
    {
        m_skips->Trimmed(flow, path);
    }
    else if (m_skips && cut == Cut::NOT)
    {
        m_skips->Marked(flow, path);
    }
    if (cut != Cut::NOT && flow.transfer && flow.transfer->on_trimmed)
    {
        flow.transfer->on_trimmed(Load32(bytes + 16), cut == Cut::LAST_HOP);
    }
    return true;
}

bool
Device::IsDue(const Sequence& its, const Segment& segment) const
{
    return segment.sequence == its.next || (segment.cell == its.cell && m_fabric->selector().has_flowcells());
}

void
Device::Resequence(const Flow& flow, Segment segment, std::int64_t patience)
{
    Sequence& its = m_sequences[&flow];
    if (!its.known)
    {
        its.known = true;
        its.next = segment.sequence;
        its.mean_wait = patience / PRESTO_WAITS;
    }
    const auto ahead = static_cast<std::int32_t>(segment.sequence - its.next);
    const bool has_flowcells = m_fabric->selector().has_flowcells();
    const std::int64_t now = ns3::Simulator::Now().GetTimeStep();
    const auto wait = [&] {
        const std::int64_t most = has_flowcells ? PRESTO_WAITS * its.mean_wait : patience;
        its.timer = ns3::Simulator::Schedule(ns3::TimeStep(most), [this, &its] { Release(its, true); });
    };
    const auto has_waited = [&] {
        its.mean_wait += (now - its.since - its.mean_wait) / PRESTO_MEAN;
        its.since = 0;
    };
    if (ahead > 0 && !IsDue(its, segment))
    {
        its.held.emplace(segment.sequence, segment);
        if (!its.timer.IsRunning())
        {
            its.since = has_flowcells ? now : 0;
            wait();
        }
        return;
    }
    if (its.since && static_cast<std::int16_t>(segment.cell - its.cell) < 0)
    {
        has_waited(); // too short: it was given up
    }
    m_tcp->Receive(segment.packet, segment.header, m_interface);
    const std::int32_t more = ahead + static_cast<std::int32_t>(segment.payload);
    if (more > 0)
    {
        its.next += more;
        its.cell = segment.cell;
        Release(its, false);
        its.timer.Cancel();
        if (!its.held.empty())
        {
            wait(); // for the next missing segment
        }
        else if (its.since)
        {
            has_waited();
        }
    }
}

void
Device::Release(Sequence& its, bool all)
{
    while (!its.held.empty())
    {
        // Ascending from the next expected sequence number, which may wrap around.
        auto first = its.held.lower_bound(its.next);
        first = first == its.held.end() ? its.held.begin() : first;
        if (!all && !IsDue(its, first->second))
        {
            return;
        }
        const Segment segment = first->second;
        its.held.erase(first);
        its.cell = segment.cell;
        its.next = segment.sequence + segment.payload;
        m_tcp->Receive(segment.packet, segment.header, m_interface);
    }
}

} // namespace sopa
