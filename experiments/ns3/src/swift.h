// A congestion control by delay: Swift (Kumar et al., SIGCOMM 2020, section 3.1), for packets of many paths.
#pragma once

#include "ns3/tcp-linux-reno.h"
#include "ns3/tcp-socket-state.h"

#include <cstdint>

namespace sopa
{

// The delay that counts is the shortest of a round trip: it grows when all paths have queues, and not when one has.
class Swift : public ns3::TcpLinuxReno
{
  public:
    static ns3::TypeId GetTypeId();
    ns3::TypeId GetInstanceTypeId() const override { return GetTypeId(); }
    std::string GetName() const override { return "TcpSwift"; }
    ns3::Ptr<ns3::TcpCongestionOps> Fork() override { return ns3::CreateObject<Swift>(*this); }
    void IncreaseWindow(ns3::Ptr<ns3::TcpSocketState> tcb, std::uint32_t segments) override;

    // Note how long data took in the fabric, as an acknowledgement says.
    void Delayed(ns3::Ptr<ns3::TcpSocketState> tcb, std::int32_t nanoseconds);

  private:
    std::int32_t m_least = INT32_MAX, m_of_round = INT32_MAX;
    std::int64_t m_round_ends = 0;
    bool m_congested = false;
};

} // namespace sopa
