#include "subflow.h"

#include "swift.h"

#include "ns3/object-factory.h"
#include "ns3/rtt-estimator.h"
#include "ns3/tcp-congestion-ops.h"
#include "ns3/tcp-l4-protocol.h"
#include "ns3/tcp-prr-recovery.h"
#include "ns3/tcp-tx-buffer.h"

namespace sopa
{

constexpr std::uint32_t CONGESTED_PART = 4; // of what is on its way

NS_OBJECT_ENSURE_REGISTERED(Subflow);

ns3::TypeId
Subflow::GetTypeId()
{
    static ns3::TypeId tid = ns3::TypeId("sopa::Subflow").SetParent<ns3::TcpSocketBase>().AddConstructor<Subflow>();
    return tid;
}

void
Subflow::AvoidEmptySegments()
{
    m_txBuffer->SetRWndCallback(ns3::MakeCallback(&Subflow::WindowOfWholeSegments, this));
}

// Return the receiver's window if it has room for another segment, or less than is sent already.
std::uint32_t
Subflow::WindowOfWholeSegments() const
{
    const std::uint32_t window = m_rWnd, sent = UnAckDataCount();
    return sent && window >= sent && window - sent < m_tcb->m_segmentSize ? sent - 1 : window;
}

std::uint32_t
Subflow::Room() const
{
    if (m_state != ESTABLISHED)
    {
        return 0;
    }
    const std::uint32_t window = AvailableWindow(), waiting = m_txBuffer->SizeFromSequence(m_tcb->m_nextTxSequence);
    return window > waiting ? window - waiting : 0;
}

void
Subflow::ReceivedAck(ns3::Ptr<ns3::Packet> packet, const ns3::TcpHeader& header)
{
    TcpSocketBase::ReceivedAck(packet, header);
    if (m_after)
    {
        m_after();
    }
}

void
Subflow::Trimmed(std::uint32_t sequence, bool last_hop)
{
    const ns3::SequenceNumber32 at(sequence);
    if (at < m_txBuffer->HeadSequence() || at >= m_tcb->m_highTxMark || m_state == CLOSED)
    {
        return; // it has arrived meanwhile
    }
    if (!m_any_cut || at >= m_round_ends)
    {
        m_any_cut = true;
        m_reduced = false;
        m_cut = 0;
        m_round_ends = m_tcb->m_highTxMark;
    }
    const bool congested = last_hop || ++m_cut > BytesInFlight() / m_tcb->m_segmentSize / CONGESTED_PART;
    if (congested && !m_reduced && m_tcb->m_congState <= ns3::TcpSocketState::CA_DISORDER)
    {
        m_reduced = true;
        m_tcb->m_ssThresh = m_congestionControl->GetSsThresh(m_tcb, BytesInFlight());
        m_tcb->m_cWnd = m_tcb->m_ssThresh;
    }
    SendDataPacket(at, m_tcb->m_segmentSize, m_connected);
}

void
Subflow::Delayed(std::int32_t nanoseconds)
{
    ns3::DynamicCast<Swift>(m_congestionControl)->Delayed(m_tcb, nanoseconds);
}

ns3::Ptr<Subflow>
CreateSubflow(ns3::Ptr<ns3::Node> node, const std::string& congestion)
{
    const auto tcp = node->GetObject<ns3::TcpL4Protocol>();
    const auto socket = ns3::CreateObject<Subflow>();
    socket->SetNode(node);
    socket->SetTcp(tcp);
    socket->SetRtt(ns3::CreateObject<ns3::RttMeanDeviation>());
    socket->SetCongestionControlAlgorithm(ns3::ObjectFactory("ns3::Tcp" + congestion).Create<ns3::TcpCongestionOps>());
    socket->SetRecoveryAlgorithm(ns3::CreateObject<ns3::TcpPrrRecovery>());
    socket->AvoidEmptySegments();
    tcp->AddSocket(socket);
    return socket;
}

} // namespace sopa
