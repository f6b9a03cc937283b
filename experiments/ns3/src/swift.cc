#include "swift.h"

#include "ns3/simulator.h"

#include <algorithm>

namespace sopa
{

namespace
{

constexpr double TARGET = 1.5, BETA = 0.8, MOST_DECREASE = 0.5; // of the least delay; the paper's

} // namespace

NS_OBJECT_ENSURE_REGISTERED(Swift);

ns3::TypeId
Swift::GetTypeId()
{
    static ns3::TypeId tid = ns3::TypeId("ns3::TcpSwift").SetParent<ns3::TcpLinuxReno>().AddConstructor<Swift>();
    return tid;
}

void
Swift::Delayed(ns3::Ptr<ns3::TcpSocketState> tcb, std::int32_t nanoseconds)
{
    m_least = std::min(m_least, nanoseconds);
    m_of_round = std::min(m_of_round, nanoseconds);
    const std::int64_t now = ns3::Simulator::Now().GetTimeStep();
    if (now < m_round_ends)
    {
        return;
    }
    const double target = TARGET * m_least;
    m_congested = m_of_round > target;
    if (m_congested)
    {
        const double kept = 1 - std::min(MOST_DECREASE, BETA * (m_of_round - target) / m_of_round);
        tcb->m_cWnd = std::max(static_cast<std::uint32_t>(kept * tcb->m_cWnd), 2 * tcb->m_segmentSize);
        tcb->m_ssThresh = tcb->m_cWnd;
    }
    m_round_ends = now + 2 * m_of_round;
    m_of_round = INT32_MAX;
}

void
Swift::IncreaseWindow(ns3::Ptr<ns3::TcpSocketState> tcb, std::uint32_t segments)
{
    if (!m_congested)
    {
        TcpLinuxReno::IncreaseWindow(tcb, segments);
    }
}

} // namespace sopa
