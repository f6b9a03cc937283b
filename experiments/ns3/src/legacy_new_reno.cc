#include "legacy_new_reno.h"

#include "ns3/rtt-estimator.h"
#include "ns3/tcp-congestion-ops.h"
#include "ns3/tcp-l4-protocol.h"
#include "ns3/tcp-prr-recovery.h"
#include "ns3/tcp-socket-base.h"
#include "ns3/tcp-tx-buffer.h"

#include <algorithm>

namespace sopa
{

namespace
{

class LegacyNewReno : public ns3::TcpSocketBase
{
  public:
    static ns3::TypeId GetTypeId()
    {
        static ns3::TypeId tid = ns3::TypeId("sopa::LegacyNewReno").SetParent<ns3::TcpSocketBase>().AddConstructor<LegacyNewReno>();
        return tid;
    }

    ns3::TypeId GetInstanceTypeId() const override { return GetTypeId(); }

  protected:
    void ReceivedAck(ns3::Ptr<ns3::Packet> packet, const ns3::TcpHeader& header) override
    {
        if (m_tcb->m_congState == ns3::TcpSocketState::CA_LOSS) // after a timeout, all segments are retransmitted in order
        {
            TcpSocketBase::ReceivedAck(packet, header);
            return;
        }
        const ns3::SequenceNumber32 ack = header.GetAckNumber(), head = m_txBuffer->HeadSequence();
        if (ack > head)
        {
            Advance(ack, ack - head);
        }
        else if (ack == head && ack < m_tcb->m_nextTxSequence && packet->GetSize() == 0)
        {
            Duplicate();
        }
        if (packet->GetSize() > 0)
        {
            ReceivedData(packet, header);
        }
    }

    std::uint32_t BytesInFlight() const override
    {
        if (m_tcb->m_congState == ns3::TcpSocketState::CA_LOSS)
        {
            return TcpSocketBase::BytesInFlight();
        }
        m_tcb->m_bytesInFlight = UnAckDataCount();
        return UnAckDataCount();
    }

  private:
    bool Recovers() const { return m_tcb->m_congState == ns3::TcpSocketState::CA_RECOVERY; }

    void Duplicate()
    {
        ++m_dupAckCount;
        const std::uint32_t segment = m_tcb->m_segmentSize;
        if (Recovers())
        {
            m_tcb->m_cWnd += segment;
            SendPendingData(m_connected);
        }
        else if (m_dupAckCount == m_retxThresh)
        {
            m_tcb->m_ssThresh = std::max(2 * segment, BytesInFlight() / 2);
            m_tcb->m_cWnd = m_tcb->m_ssThresh + 3 * segment;
            m_recover = m_tcb->m_highTxMark;
            m_tcb->m_congState = ns3::TcpSocketState::CA_RECOVERY;
            SendDataPacket(m_txBuffer->HeadSequence(), segment, true);
        }
    }

    void Advance(ns3::SequenceNumber32 ack, std::uint32_t bytes)
    {
        const std::uint32_t segment = m_tcb->m_segmentSize;
        const bool partial = Recovers() && ack < m_recover;
        if (partial)
        {
            // Unsigned, as in ns-3 3.20: if it wraps, the receive window limits the sender until recovery ends.
            m_tcb->m_cWnd = m_tcb->m_cWnd - bytes + segment;
        }
        else
        {
            if (Recovers())
            {
                m_tcb->m_cWnd = std::min(m_tcb->m_ssThresh.Get(), BytesInFlight() + segment);
                m_tcb->m_congState = ns3::TcpSocketState::CA_OPEN;
            }
            const std::uint32_t window = m_tcb->m_cWnd;
            m_tcb->m_cWnd += window < m_tcb->m_ssThresh ? segment : std::max(1u, segment * segment / window);
        }
        m_dupAckCount = 0;
        m_txBuffer->DiscardUpTo(ack);
        m_highRxAckMark = std::max(ack, m_highRxAckMark.Get());
        NewAck(ack, true);
        SendPendingData(m_connected);
        if (partial && m_txBuffer->Size() > 0)
        {
            SendDataPacket(m_txBuffer->HeadSequence(), segment, true);
        }
    }
};

NS_OBJECT_ENSURE_REGISTERED(LegacyNewReno);

} // namespace

ns3::Ptr<ns3::Socket>
CreateLegacyNewReno(ns3::Ptr<ns3::Node> node)
{
    const auto tcp = node->GetObject<ns3::TcpL4Protocol>();
    const auto socket = ns3::CreateObject<LegacyNewReno>();
    socket->SetNode(node);
    socket->SetTcp(tcp);
    socket->SetRtt(ns3::CreateObject<ns3::RttMeanDeviation>());
    socket->SetCongestionControlAlgorithm(ns3::CreateObject<ns3::TcpNewReno>());
    socket->SetRecoveryAlgorithm(ns3::CreateObject<ns3::TcpPrrRecovery>());
    tcp->AddSocket(socket);
    return socket;
}

} // namespace sopa
