// Sockets whose window the receiver limits, or that hear what switches have trimmed. Subflows of multipath TCP use them, too: ordinary
// connections that share the data of one transfer.
#pragma once

#include "ns3/node.h"
#include "ns3/tcp-socket-base.h"

#include <functional>
#include <string>

namespace sopa
{

class Subflow : public ns3::TcpSocketBase
{
  public:
    static ns3::TypeId GetTypeId();
    ns3::TypeId GetInstanceTypeId() const override { return GetTypeId(); }

    // Keep ns-3 3.37 from a crash where the receiver's window is what limits the sender during a recovery: TcpTxBuffer::NextSeg then
    // gives a segment of no bytes, and TcpSocketBase sends it.
    void AvoidEmptySegments();

    // Return the bytes that it could send now, beyond those that it already has.
    std::uint32_t Room() const;

    // Call a function after each acknowledgement.
    void OnAcknowledgement(std::function<void()> function) { m_after = std::move(function); }

    // Send data again that a queue has cut off. At the last hop, which no path avoids, this is congestion, and so is a quarter of what is
    // on its way: the window becomes smaller, as after a loss, once in that.
    void Trimmed(std::uint32_t sequence, bool last_hop);

    // Tell the congestion control, which is Swift, how long data took in the fabric.
    void Delayed(std::int32_t nanoseconds);

  protected:
    void ReceivedAck(ns3::Ptr<ns3::Packet> packet, const ns3::TcpHeader& header) override;

  private:
    std::uint32_t WindowOfWholeSegments() const;

    std::function<void()> m_after;
    ns3::SequenceNumber32 m_round_ends{0}; // of what was on its way when the last round began
    std::uint32_t m_cut = 0;               // segments of the round whose data were cut off
    bool m_any_cut = false, m_reduced = false;
};

// Create a socket as TcpL4Protocol does. `congestion` is the name of a congestion control, as in "Dctcp".
ns3::Ptr<Subflow> CreateSubflow(ns3::Ptr<ns3::Node> node, const std::string& congestion);

} // namespace sopa
