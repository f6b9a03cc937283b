// TCP transfers between hosts, and their results.
#pragma once

#include "device.h"
#include "settings.h"
#include "subflow.h"

#include "ns3/socket.h"
#include "ns3/tcp-socket-state.h"

#include <array>
#include <functional>
#include <unordered_map>
#include <vector>

namespace sopa
{

constexpr std::uint16_t PORT = 5201;

// The result of one transfer so far.
struct TransferResult
{
    // Count data that leave; false for a retransmission.
    bool Sent(std::uint32_t sequence, std::uint32_t payload);
    void Arrived(std::uint32_t sequence, std::uint32_t payload, std::int64_t sent, std::uint8_t up1, std::uint8_t up2);

    // Tell the sockets nothing more.
    void Forget();

    // Add what the subflows have counted.
    void AddSubflows();

    const TransferPlan* plan = nullptr;
    std::int64_t started = -1, ended = -1; // ns
    std::uint64_t received = 0;            // bytes read by the receiving application
    std::uint64_t packets = 0;             // received packets with data
    std::uint64_t reordered = 0;           // of those, received after a packet that was sent later (RFC 4737)
    std::uint64_t retransmitted = 0, fast_retransmits = 0, timeouts = 0;
    std::int64_t delay_sum = 0, delay_most = 0, delay_least = INT64_MAX; // ns, in the fabric
    std::uint32_t window = 0;                                            // bytes
    std::vector<std::array<std::int64_t, 2>> windows;                     // time and bytes
    std::vector<std::array<std::int64_t, 5>> arrivals;                    // time, sequence, up1, up2, delay
    std::int64_t interval = 0;                                           // ns, of `series`; 0: none
    std::vector<std::uint64_t> series;                                   // bytes of data that arrived in each interval of the run
    std::vector<TransferResult> subflows;                                // of multipath TCP: one each
    std::function<void(std::int32_t)> on_delay;          // gets that of data in the fabric, ns
    std::function<void(std::uint32_t, bool)> on_trimmed; // gets the sequence number of data that were cut off, and if at the last hop

  private:
    std::uint32_t m_highest_sent = 0, m_highest_arrived = 0, m_first = 0;
    bool m_any_sent = false, m_any_arrived = false;
};

// Runs all transfers of a plan, and stops the simulator after the last one.
class Transfers
{
  public:
    Transfers(const Settings& settings, std::vector<ns3::Ptr<Device>> devices, std::uint32_t segment);

    // Schedule the starts of all transfers.
    void Start();

    // Set the end time of transfers that are still running.
    void Finish();

    // Record the congestion window of every sender.
    void SampleWindows();

    std::vector<TransferResult> results;

  private:
    void Schedule(std::uint32_t number, std::int64_t delay);
    void Begin(std::uint32_t number);
    void Accept(Host host, ns3::Ptr<ns3::Socket> socket, const ns3::Address& peer);
    void Fill(std::uint32_t number, ns3::Ptr<ns3::Socket> socket, std::uint32_t room);
    ns3::Ptr<ns3::Socket> Open(std::uint32_t number, TransferResult& its);

    // Give data to subflows, each segment to the one with the largest available window (MCS paper, section VI.A).
    void Share(std::uint32_t number);
    void Drain(std::uint32_t number, ns3::Ptr<ns3::Socket> socket);
    void Complete(std::uint32_t number);

    const Settings& m_settings;
    const Clos m_tree;
    std::vector<ns3::Ptr<Device>> m_devices;
    std::vector<std::vector<std::uint32_t>> m_followers;
    std::vector<std::size_t> m_awaited; // transfers that have to end before each may start
    std::vector<std::int64_t> m_unsent; // bytes not yet passed to TCP
    std::vector<std::vector<ns3::Ptr<ns3::Socket>>> m_senders, m_receivers; // of each transfer; several with subflows
    std::vector<ns3::Ptr<ns3::Socket>> m_listeners;
    std::vector<std::vector<ns3::Ptr<Subflow>>> m_subflows;
    std::vector<std::uint16_t> m_next_port;
    std::vector<std::unordered_map<std::uint64_t, std::uint32_t>> m_expected; // per host: address and port of the sender
    std::uint32_t m_open = 0, m_waiting = 0, m_segment;
};

} // namespace sopa
