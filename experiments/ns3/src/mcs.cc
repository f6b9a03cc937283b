#include "mcs.h"

#include "ns3/header.h"
#include "ns3/simulator.h"

#include <algorithm>

namespace sopa
{

namespace
{

constexpr std::uint32_t MAX_TCP_BYTES = 60, FIXED_TCP_BYTES = 20;
constexpr std::uint8_t FRESH = 3, MAX_WEIGHT = 3, FIN = 1, SYN = 2, RST = 4, ACK = 16;
constexpr std::uint8_t END = 0, NOP = 1, WINDOW_SCALE = 3, SACK = 5; // kinds of TCP options
constexpr std::uint32_t UNIT = 1024, GAIN = 16;                      // of alpha: g is 1/16 (DCTCP paper, section 3.4)
constexpr std::uint64_t MAX_WINDOW = 1u << 30;                       // a larger one cannot be announced (RFC 7323)

bool
Before(std::uint32_t a, std::uint32_t b)
{
    return static_cast<std::int32_t>(a - b) < 0;
}

std::uint32_t
Load32(const std::uint8_t* at)
{
    return std::uint32_t(at[0]) << 24 | std::uint32_t(at[1]) << 16 | std::uint32_t(at[2]) << 8 | at[3];
}

// A TCP header as bytes, written back after a change. TCP's checksums are off in ns-3.
class TcpBytes : public ns3::Header
{
  public:
    TcpBytes() = default;
    TcpBytes(const std::uint8_t* bytes, std::uint32_t size) : m_size(size) { std::copy_n(bytes, size, m_bytes); }

    static ns3::TypeId GetTypeId()
    {
        static ns3::TypeId tid = ns3::TypeId("sopa::TcpBytes").SetParent<ns3::Header>().AddConstructor<TcpBytes>();
        return tid;
    }

    ns3::TypeId GetInstanceTypeId() const override { return GetTypeId(); }
    std::uint32_t GetSerializedSize() const override { return m_size; }
    void Serialize(ns3::Buffer::Iterator start) const override { start.Write(m_bytes, m_size); }
    std::uint32_t Deserialize(ns3::Buffer::Iterator start) override
    {
        start.Read(m_bytes, m_size);
        return m_size;
    }
    void Print(std::ostream& stream) const override { stream << m_size << " bytes"; }

  private:
    std::uint8_t m_bytes[MAX_TCP_BYTES] = {};
    std::uint32_t m_size = FIXED_TCP_BYTES;
};

} // namespace

struct Shim::Tcp
{
    // Read the TCP header at `offset` of a packet.
    Tcp(const ns3::Packet& packet, std::uint32_t offset)
    {
        std::uint8_t whole[MAX_TCP_BYTES + 16];
        const std::uint32_t copied = packet.CopyData(whole, offset + MAX_TCP_BYTES);
        std::copy_n(whole + offset, copied - offset, bytes);
        header = (bytes[12] >> 4) * 4;
        payload = packet.GetSize() - offset - header;
    }

    std::uint32_t sequence() const { return Load32(bytes + 4); }
    std::uint32_t acknowledgement() const { return Load32(bytes + 8); }
    bool has(std::uint8_t flags) const { return bytes[13] & flags; }
    std::uint32_t size() const { return payload + has(SYN) + has(FIN); } // in sequence numbers
    std::uint16_t window() const { return bytes[14] << 8 | bytes[15]; }
    void window(std::uint32_t units)
    {
        bytes[14] = units >> 8;
        bytes[15] = units & 0xff;
    }

    // Return the first byte of an option; 0 if there is none of this kind.
    std::uint32_t Find(std::uint8_t kind) const
    {
        std::uint32_t at = FIXED_TCP_BYTES;
        while (at < header && bytes[at] != END)
        {
            if (bytes[at] == kind)
            {
                return at;
            }
            at += bytes[at] == NOP ? 1 : std::max<std::uint32_t>(2, bytes[at + 1]);
        }
        return 0;
    }

    std::uint8_t bytes[MAX_TCP_BYTES] = {};
    std::uint32_t header, payload;
};

struct Shim::Mco
{
    std::uint16_t received_ce, received;
    std::uint8_t packets, channel;
    std::uint32_t gsn, lsn;
};

class Shim::McoHeader : public ns3::Header
{
  public:
    McoHeader() = default;
    McoHeader(const Mco& mco, std::uint32_t size) : m_mco(mco), m_size(size) {}
    const Mco& mco() const { return m_mco; }

    static ns3::TypeId GetTypeId()
    {
        static ns3::TypeId tid = ns3::TypeId("sopa::McoHeader").SetParent<ns3::Header>().AddConstructor<McoHeader>();
        return tid;
    }

    ns3::TypeId GetInstanceTypeId() const override { return GetTypeId(); }
    std::uint32_t GetSerializedSize() const override { return m_size; }

    void Serialize(ns3::Buffer::Iterator start) const override
    {
        if (m_size > McoBytes(1))
        {
            start.WriteHtonU16(m_mco.received_ce);
            start.WriteHtonU16(m_mco.received);
            start.WriteU16(0);
        }
        else
        {
            start.WriteU8(m_mco.received_ce);
            start.WriteU8(m_mco.received);
        }
        start.WriteU8(m_mco.packets);
        start.WriteU8(m_mco.channel);
        start.WriteHtonU32(m_mco.gsn);
        start.WriteHtonU32(m_mco.lsn);
    }

    std::uint32_t Deserialize(ns3::Buffer::Iterator start) override
    {
        if (m_size > McoBytes(1))
        {
            m_mco.received_ce = start.ReadNtohU16();
            m_mco.received = start.ReadNtohU16();
            start.ReadU16();
        }
        else
        {
            m_mco.received_ce = start.ReadU8();
            m_mco.received = start.ReadU8();
        }
        m_mco.packets = start.ReadU8();
        m_mco.channel = start.ReadU8();
        m_mco.gsn = start.ReadNtohU32();
        m_mco.lsn = start.ReadNtohU32();
        return m_size;
    }

    void Print(std::ostream& stream) const override { stream << "channel " << +m_mco.channel; }

  private:
    Mco m_mco{};
    std::uint32_t m_size = McoBytes(1);
};

Shim::Shim(std::uint32_t channels, std::uint32_t mss, std::int64_t patience, bool weights_only)
    : m_channels(channels),
      m_mss(mss),
      m_patience(patience),
      m_weights_only(weights_only)
{
}

std::vector<Shim::Segments>
Shim::SuperPackets(const Segments& segments)
{
    std::vector<Segments> found;
    std::uint32_t next = 0;
    for (const auto& segment : segments)
    {
        const Tcp tcp(*segment, 0);
        if (found.empty() || tcp.sequence() != next || !tcp.payload)
        {
            found.emplace_back();
        }
        found.back().push_back(segment);
        next = tcp.sequence() + tcp.size();
    }
    return found;
}

// Return the states of a connection. Any packet initializes them: `sequence` is the number of the first one if this host sends it.
Shim::Connection&
Shim::Of(const Flow& flow, std::uint32_t sequence)
{
    const auto [found, made] = m_connections.try_emplace(&flow);
    Connection& its = found->second;
    if (made)
    {
        its.nsn = its.msn = sequence;
        its.window = 10ull * m_mss;
        its.current = m_channels - 1;
        for (Channel& channel : its.channels)
        {
            channel.nlsn = sequence;
        }
    }
    return its;
}

// Algorithm 3.
std::uint32_t
Shim::SelectChannel(Connection& its) const
{
    std::uint32_t c = its.current;
    for (std::uint32_t step = 0; step <= m_channels; ++step)
    {
        c = c + 1 < m_channels ? c + 1 : 0;
        Channel& channel = its.channels[c];
        if (channel.active)
        {
            if (channel.skip == 0)
            {
                channel.skip = (1u << channel.weight) - 1;
                return its.current = c;
            }
            --channel.skip;
        }
    }
    if (std::none_of(its.channels.begin(), its.channels.begin() + m_channels, [](const Channel& one) { return one.active; }))
    {
        for (Channel& channel : its.channels) // the paper does not say what happens then
        {
            channel.active = true;
            channel.freshness = FRESH;
        }
    }
    do
    {
        c = c + 1 < m_channels ? c + 1 : 0;
    } while (!its.channels[c].active);
    return its.current = c;
}

bool
Shim::Send(Flow& flow, const Segments& segments)
{
    Tcp tcp(*segments.front(), 0);
    Connection& its = Of(flow, tcp.sequence());
    std::uint32_t size = 0;
    for (const auto& segment : segments)
    {
        size += segments.size() == 1 ? tcp.size() : Tcp(*segment, 0).size();
    }
    if (tcp.has(ACK)) // algorithm 1, of the flow that this host receives
    {
        const std::uint32_t an = tcp.acknowledgement();
        const bool pure = size == 0 && !tcp.has(RST);
        const std::uint32_t sack = pure ? tcp.Find(SACK) : 0; // ns-3 has no D-SACK
        const bool advanced = !its.lan_known || Before(its.lan, an);
        if (advanced || an == its.lan)
        {
            WatchGap(its, tcp, sack, advanced);
        }
        const bool filter = sack && !m_weights_only;
        if (filter && !advanced && an == its.lan && !its.loss)
        {
            return false;
        }
        if (advanced)
        {
            its.lan = an;
            its.lan_known = true;
            its.loss = its.loss && !Before(its.rsn, an);
        }
        if (filter && !its.loss) // or TCP at the other end would take what is late for lost
        {
            std::fill_n(tcp.bytes + sack, tcp.bytes[sack + 1], NOP);
            segments.front()->RemoveAtStart(tcp.header);
            segments.front()->AddHeader(TcpBytes(tcp.bytes, tcp.header));
        }
    }
    if (size && Before(tcp.sequence(), its.nsn))
    {
        OnRetransmission(its, tcp.sequence());
    }
    const std::uint32_t c = SelectChannel(its);
    Channel& channel = its.channels[c];
    const McoHeader mco({its.received_ce, its.received, its.packets, static_cast<std::uint8_t>(c), tcp.sequence(), channel.nlsn},
                        McoBytes(m_channels));
    its.received_ce = its.received = its.packets = 0;
    channel.nlsn += size;
    if (Before(its.nsn, tcp.sequence() + size))
    {
        its.nsn = tcp.sequence() + size;
    }
    if (size && channel.freshness == FRESH) // algorithm 5
    {
        --channel.freshness;
    }
    for (const auto& segment : segments)
    {
        segment->AddHeader(mco);
    }
    flow.channel = c;
    flow.capable = size > 0;
    return true;
}

void
Shim::Receive(const Flow& back, ns3::Packet& packet, bool marked)
{
    McoHeader header({}, McoBytes(m_channels));
    packet.RemoveHeader(header);
    Tcp tcp(packet, 0);
    Connection& its = Of(back, 0);
    OnData(its, header.mco(), tcp, marked);
    OnFeedback(its, header.mco(), tcp);
    if (tcp.has(SYN))
    {
        const std::uint32_t option = tcp.Find(WINDOW_SCALE);
        its.scale = option ? tcp.bytes[option + 2] : 0;
        its.scale_known = true;
    }
    else if (!m_weights_only && !its.slow_start && its.scale_known)
    {
        const auto limit = static_cast<std::uint32_t>(std::max<std::uint64_t>(1, its.window >> its.scale));
        if (limit < tcp.window())
        {
            tcp.window(limit);
            packet.RemoveAtStart(FIXED_TCP_BYTES);
            packet.AddHeader(TcpBytes(tcp.bytes, FIXED_TCP_BYTES));
        }
    }
}

// What is missing for long was lost: a channel that has died shows no gap. `sack` is the first byte of that option, 0 without it.
void
Shim::WatchGap(Connection& its, const Tcp& tcp, std::uint32_t sack, bool advanced) const
{
    const std::int64_t now = ns3::Simulator::Now().GetNanoSeconds();
    if (its.gap_since >= 0 && sack && !its.loss && now - its.gap_since >= m_patience)
    {
        its.loss = true;
        its.rsn = Load32(tcp.bytes + sack + 6); // the end of the first block
    }
    if (advanced || its.gap_since < 0)
    {
        its.gap_since = sack ? now : -1;
    }
}

// Algorithm 1, as receiver of data, and the repair of LAN.
void
Shim::OnData(Connection& its, const Mco& mco, const Tcp& tcp, bool marked) const
{
    if (!tcp.size() || mco.channel >= m_channels)
    {
        return;
    }
    Channel& channel = its.channels[mco.channel];
    const std::uint32_t lsn = mco.lsn + (tcp.sequence() - mco.gsn);
    if (channel.initialized && Before(channel.expected, lsn))
    {
        its.loss = true;
        its.rsn = tcp.sequence();
    }
    channel.expected = lsn + tcp.size();
    channel.initialized = true;
    if (its.lan_known && Before(tcp.sequence(), its.lan))
    {
        its.lan = tcp.sequence(); // the acknowledgement was lost: it has to pass again
    }
    its.received |= 1u << mco.channel;
    if (marked)
    {
        its.received_ce |= 1u << mco.channel;
    }
    else if (its.packets < UINT8_MAX)
    {
        ++its.packets;
    }
}

// Algorithms 2, 4 and 5, as sender of data.
void
Shim::OnFeedback(Connection& its, const Mco& mco, const Tcp& tcp) const
{
    its.congested |= mco.received_ce;
    for (std::uint32_t c = 0; c < m_channels; ++c)
    {
        if (mco.received >> c & 1)
        {
            its.channels[c].freshness = FRESH;
            its.channels[c].active = true;
        }
    }
    if (tcp.sequence() == mco.gsn) // of a super-packet only the first one counts
    {
        const std::uint64_t bytes = std::uint64_t(m_mss) * mco.packets;
        its.window = std::min(MAX_WINDOW, its.window + (its.slow_start ? bytes / 2 : bytes * m_mss / its.window));
    }
    if (tcp.has(ACK) && Before(its.msn, tcp.acknowledgement()))
    {
        OnNewRound(its);
    }
}

void
Shim::OnNewRound(Connection& its) const
{
    const auto begin = its.channels.begin(), end = begin + m_channels;
    for (std::uint32_t c = 0; c < m_channels; ++c) // algorithm 2: one channel in a round trip
    {
        if ((its.congested >> c & 1) && its.channels[c].weight < MAX_WEIGHT)
        {
            ++its.channels[c].weight;
            break;
        }
    }
    if (std::all_of(begin, end, [](const Channel& one) { return !one.active || one.weight > 0; }))
    {
        std::for_each(begin, end, [](Channel& one) { one.weight -= one.weight > 0; });
    }
    if (its.congested) // algorithm 4
    {
        its.alpha += (UNIT - its.alpha) / GAIN;
        its.slow_start = false;
        its.window = std::max<std::uint64_t>(2 * m_mss, its.window - its.window * its.alpha / (2 * UNIT));
    }
    else
    {
        its.alpha -= its.alpha / GAIN;
    }
    Age(its);
    its.resent = false;
    its.congested = 0;
    its.msn = its.nsn + 1;
}

// Algorithm 5, onNewRTT.
void
Shim::Age(Connection& its) const
{
    std::for_each(its.channels.begin(), its.channels.begin() + m_channels, [](Channel& one) {
        if (one.freshness == 0)
        {
            one.active = false;
        }
        else if (one.freshness < FRESH)
        {
            --one.freshness;
        }
    });
}

// What TCP sends again ends a round, in which nothing has come back ("2-3 RTT/RTO", section IV.F), and begins one that ends with its
// acknowledgement. Or else no round would end before everything is acknowledged that was on its way when a channel died. Of what
// is sent again meanwhile only an earlier or the same byte does so.
void
Shim::OnRetransmission(Connection& its, std::uint32_t sequence) const
{
    if (its.resent && Before(its.msn, sequence))
    {
        return;
    }
    Age(its);
    its.resent = true;
    if (Before(sequence, its.msn))
    {
        its.msn = sequence;
    }
}

std::uint32_t
Shim::Limit(const Flow& flow) const
{
    const auto found = m_connections.find(&flow);
    return m_weights_only || found == m_connections.end() || found->second.slow_start ? UINT32_MAX : found->second.window;
}

} // namespace sopa
