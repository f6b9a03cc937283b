// Multi-Channel Scatter (Li, Bi, Wang, IFIP Networking 2017): the shim between TCP and the network at both hosts. It scatters the
// packets of a connection over channels, filters duplicate acknowledgements, moves traffic away from marked channels, limits the
// receive window as DCTCP would, and leaves dead channels. It delays no packet and has no timer.
//
// Names of fields are those of the paper (figures 2 and 3). TCP knows nothing of it: its segments are changed as bytes.
#pragma once

#include "flow.h"

#include "ns3/packet.h"

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace sopa
{

constexpr std::uint32_t MAX_CHANNELS = 16;

// Bytes of the MCS option (MCO) in a packet: up to 8 channels it has the size of the paper's.
constexpr std::uint32_t
McoBytes(std::uint32_t channels)
{
    return channels == 0 ? 0 : channels <= 8 ? 12 : 16;
}

class Shim
{
  public:
    using Segments = std::vector<ns3::Ptr<ns3::Packet>>;

    // `mss` are the bytes of payload of a full segment. What is missing for `patience` ns while later packets arrive is lost.
    // With `weights_only` acknowledgements and windows are left as they are.
    Shim(std::uint32_t channels, std::uint32_t mss, std::int64_t patience, bool weights_only);

    std::uint32_t bytes() const { return McoBytes(m_channels); } // in each packet

    // Cut segments that leave together into what a host would pass to the network as one packet: each part has contiguous data.
    static std::vector<Segments> SuperPackets(const Segments& segments);

    // Process one (super-)packet of a flow: choose its channel, which is then that of the flow, and put the MCO before each TCP
    // header. Return false if it is a duplicate acknowledgement, to be dropped.
    bool Send(Flow& flow, const Segments& segments);

    // Process a packet that begins with an MCO, and remove that. `back` is the flow in the other direction, whose sender is this host.
    void Receive(const Flow& back, ns3::Packet& packet, bool marked);

    // Return the bytes to which the window of a flow's sender is limited; UINT32_MAX before the first mark.
    std::uint32_t Limit(const Flow& flow) const;

  private:
    struct Channel
    {
        std::uint32_t nlsn = 0;     // next local sequence number, of data sent
        std::uint32_t expected = 0; // next local sequence number of data received
        std::uint8_t freshness = 3, skip = 0, weight = 0;
        bool active = true, initialized = false;
    };

    // The states of a connection at one of its hosts: as sender of one flow, and as receiver of the other.
    struct Connection
    {
        std::array<Channel, MAX_CHANNELS> channels;
        std::uint32_t nsn = 0, msn = 0;           // next sequence number, milestone
        std::uint64_t window = 0;                 // WS, bytes
        std::uint32_t alpha = 1024;               // of 1024
        std::uint16_t congested = 0;              // CB
        std::uint8_t current = 0;                 // channel
        bool slow_start = true;
        std::uint32_t lan = 0, rsn = 0;           // last acknowledgement number, retransmission sequence number
        std::uint16_t received = 0, received_ce = 0;
        std::uint8_t packets = 0;                 // received without a mark
        std::int64_t gap_since = -1;              // ns: when what is behind the next expected packet began to come; -1: nothing is
        bool lan_known = false, loss = false;
        bool resent = false;                      // in this round
        bool scale_known = false;
        std::uint8_t scale = 0;                   // of the remote host's window
    };

    // What the shim reads of a segment.
    struct Tcp;
    struct Mco;
    class McoHeader;

    Connection& Of(const Flow& flow, std::uint32_t sequence);
    std::uint32_t SelectChannel(Connection& its) const;
    void WatchGap(Connection& its, const Tcp& tcp, std::uint32_t sack, bool advanced) const;
    void OnData(Connection& its, const Mco& mco, const Tcp& tcp, bool marked) const;
    void OnFeedback(Connection& its, const Mco& mco, const Tcp& tcp) const;
    void OnNewRound(Connection& its) const;
    void Age(Connection& its) const;
    void OnRetransmission(Connection& its, std::uint32_t sequence) const;

    const std::uint32_t m_channels, m_mss;
    const std::int64_t m_patience;
    const bool m_weights_only;
    std::unordered_map<const Flow*, Connection> m_connections; // by the flow that this host sends
};

} // namespace sopa
