#include "transfer.h"

#include "legacy_new_reno.h"

#include "ns3/inet-socket-address.h"
#include "ns3/simulator.h"
#include "ns3/tcp-socket-factory.h"

#include <algorithm>
#include <functional>
#include <random>

namespace sopa
{

namespace
{

constexpr std::uint16_t FIRST_PORT = 10000, PORTS = 30000;

bool
Before(std::uint32_t a, std::uint32_t b)
{
    return static_cast<std::int32_t>(a - b) < 0;
}

std::int64_t
Now()
{
    return ns3::Simulator::Now().GetTimeStep();
}

void
OnState(TransferResult* result, ns3::TcpSocketState::TcpCongState_t, ns3::TcpSocketState::TcpCongState_t state)
{
    result->fast_retransmits += state == ns3::TcpSocketState::CA_RECOVERY;
    result->timeouts += state == ns3::TcpSocketState::CA_LOSS;
}

void
OnWindow(TransferResult* result, std::uint32_t, std::uint32_t bytes)
{
    result->window = bytes;
}

} // namespace

bool
TransferResult::Sent(std::uint32_t sequence, std::uint32_t payload)
{
    if (m_any_sent && Before(sequence, m_highest_sent))
    {
        ++retransmitted;
        return false;
    }
    m_any_sent = true;
    m_highest_sent = sequence + payload;
    return true;
}

void
TransferResult::Arrived(std::uint32_t sequence, std::uint32_t payload, std::int64_t sent, std::uint8_t up1, std::uint8_t up2)
{
    const std::int64_t delay = Now() - sent;
    ++packets;
    delay_sum += delay;
    delay_most = std::max(delay_most, delay);
    delay_least = std::min(delay_least, delay);
    if (!m_any_arrived)
    {
        m_first = sequence;
    }
    if (m_any_arrived && Before(sequence, m_highest_arrived))
    {
        ++reordered;
    }
    else
    {
        m_highest_arrived = sequence + payload;
    }
    m_any_arrived = true;
    if (interval)
    {
        const std::size_t at = Now() / interval;
        series.resize(std::max(series.size(), at + 1));
        series[at] += payload;
    }
    if (plan->traced)
    {
        arrivals.push_back({Now(), sequence - m_first, up1, up2, delay});
    }
}

void
TransferResult::Forget()
{
    on_delay = nullptr;
    on_trimmed = nullptr;
    for (TransferResult& one : subflows)
    {
        one.Forget();
    }
}

void
TransferResult::AddSubflows()
{
    for (const TransferResult& one : subflows)
    {
        packets += one.packets;
        reordered += one.reordered;
        retransmitted += one.retransmitted;
        fast_retransmits += one.fast_retransmits;
        timeouts += one.timeouts;
        delay_sum += one.delay_sum;
        delay_most = std::max(delay_most, one.delay_most);
        delay_least = std::min(delay_least, one.delay_least);
        arrivals.insert(arrivals.end(), one.arrivals.begin(), one.arrivals.end());
        series.resize(std::max(series.size(), one.series.size()));
        std::transform(one.series.begin(), one.series.end(), series.begin(), series.begin(), std::plus<>());
    }
    std::stable_sort(arrivals.begin(), arrivals.end(), [](const auto& a, const auto& b) { return a[0] < b[0]; });
    subflows.clear();
}

Transfers::Transfers(const Settings& settings, std::vector<ns3::Ptr<Device>> devices, std::uint32_t segment)
    : results(settings.transfers.size()),
      m_settings(settings),
      m_tree(settings.fabric),
      m_devices(std::move(devices)),
      m_followers(settings.transfers.size()),
      m_awaited(settings.transfers.size()),
      m_unsent(settings.transfers.size()),
      m_senders(settings.transfers.size()),
      m_receivers(settings.transfers.size()),
      m_subflows(settings.transfers.size()),
      m_next_port(m_devices.size()),
      m_expected(m_devices.size()),
      m_segment(segment)
{
    std::mt19937_64 random(settings.seed + 1); // ports, and so hashes of flows, depend on the seed
    for (std::uint16_t& port : m_next_port)
    {
        port = FIRST_PORT + random() % PORTS;
    }
}

void
Transfers::Start()
{
    std::mt19937_64 random(m_settings.seed);
    std::vector<bool> listens(m_devices.size());
    for (const TransferPlan& plan : m_settings.transfers)
    {
        results[plan.number].plan = &plan;
        results[plan.number].interval = m_settings.series;
        if (!listens[plan.destination])
        {
            listens[plan.destination] = true;
            const Host host = plan.destination;
            auto listener = ns3::Socket::CreateSocket(m_devices[host]->GetNode(), ns3::TcpSocketFactory::GetTypeId());
            listener->Bind(ns3::InetSocketAddress(ns3::Ipv4Address::GetAny(), PORT));
            listener->Listen();
            listener->SetAcceptCallback(ns3::MakeNullCallback<bool, ns3::Ptr<ns3::Socket>, const ns3::Address&>(),
                                        [this, host](ns3::Ptr<ns3::Socket> socket, const ns3::Address& peer) {
                                            Accept(host, socket, peer);
                                        });
            m_listeners.push_back(listener); // keeps the socket alive
        }
        for (const std::uint32_t before : plan.after)
        {
            m_followers[before].push_back(plan.number);
        }
        m_awaited[plan.number] = plan.after.size();
        if (!plan.after.empty())
        {
            continue;
        }
        const std::int64_t late = m_settings.spread ? std::int64_t(random() % m_settings.spread) : 0;
        Schedule(plan.number, plan.start + late);
    }
}

void
Transfers::Schedule(std::uint32_t number, std::int64_t delay)
{
    ++m_waiting;
    const Host source = m_settings.transfers[number].source;
    ns3::Simulator::ScheduleWithContext(source, ns3::TimeStep(delay), [this, number] {
        --m_waiting;
        Begin(number);
    });
}

void
Transfers::Begin(std::uint32_t number)
{
    const TransferPlan& plan = m_settings.transfers[number];
    TransferResult& its = results[number];
    m_unsent[number] = plan.bytes < 0 ? INT64_MAX : plan.bytes;
    its.started = Now();
    ++m_open;
    if (Gate* const gate = m_devices[plan.source]->gate())
    {
        gate->Begins(plan.destination, plan.bytes);
    }
    its.subflows.resize(m_settings.subflows > 1 ? m_settings.subflows : 0);
    if (its.subflows.empty())
    {
        const auto sender = Open(number, its);
        sender->SetSendCallback([this, number](ns3::Ptr<ns3::Socket> socket, std::uint32_t room) { Fill(number, socket, room); });
        sender->SetConnectCallback(
            [this, number](ns3::Ptr<ns3::Socket> socket) { Fill(number, socket, socket->GetTxAvailable()); },
            ns3::MakeNullCallback<void, ns3::Ptr<ns3::Socket>>());
    }
    for (TransferResult& one : its.subflows)
    {
        one.plan = its.plan;
        one.interval = its.interval;
        const auto sender = ns3::DynamicCast<Subflow>(Open(number, one));
        sender->OnAcknowledgement([this, number] { Share(number); });
        sender->SetConnectCallback([this, number](ns3::Ptr<ns3::Socket>) { Share(number); },
                                   ns3::MakeNullCallback<void, ns3::Ptr<ns3::Socket>>());
        m_subflows[number].push_back(sender);
    }
    for (const auto& sender : m_senders[number])
    {
        sender->Connect(ns3::InetSocketAddress(ns3::Ipv4Address(m_tree.AddressOf(plan.destination)), PORT));
    }
}

// Open the socket of a transfer, or of one of its subflows, which counts into `its`.
ns3::Ptr<ns3::Socket>
Transfers::Open(std::uint32_t number, TransferResult& its)
{
    const TransferPlan& plan = m_settings.transfers[number];
    Device& device = *m_devices[plan.source];
    const std::uint16_t port = m_next_port[plan.source]++;
    device.Expect(port, its);
    m_expected[plan.destination][std::uint64_t(m_tree.AddressOf(plan.source)) << 16 | port] = number;

    ns3::Ptr<ns3::Socket> sender;
    if (m_settings.subflows > 1 || m_settings.channels || m_settings.trim || m_settings.congestion == "Swift")
    {
        const auto own = CreateSubflow(device.GetNode(), m_settings.congestion);
        if (m_settings.congestion == "Swift")
        {
            its.on_delay = [own = ns3::PeekPointer(own)](std::int32_t nanoseconds) { own->Delayed(nanoseconds); };
        }
        if (m_settings.trim && m_settings.trim_repair)
        {
            its.on_trimmed = [own = ns3::PeekPointer(own)](std::uint32_t sequence, bool last) { own->Trimmed(sequence, last); };
        }
        sender = own;
    }
    else if (m_settings.loss_recovery == "ns-3.20")
    {
        sender = CreateLegacyNewReno(device.GetNode());
    }
    else
    {
        sender = ns3::Socket::CreateSocket(device.GetNode(), ns3::TcpSocketFactory::GetTypeId());
    }
    sender->TraceConnectWithoutContext("CongState", ns3::MakeBoundCallback(&OnState, &its));
    if (m_settings.sample || m_settings.segments > 1)
    {
        sender->TraceConnectWithoutContext("CongestionWindow", ns3::MakeBoundCallback(&OnWindow, &its));
    }
    sender->Bind(ns3::InetSocketAddress(ns3::Ipv4Address(m_tree.AddressOf(plan.source)), port));
    sender->ShutdownRecv();
    m_senders[number].push_back(sender);
    return sender;
}

void
Transfers::Share(std::uint32_t number)
{
    while (m_unsent[number] > 0)
    {
        const auto size = static_cast<std::uint32_t>(std::min<std::int64_t>(m_unsent[number], m_segment));
        Subflow* widest = nullptr;
        std::uint32_t room = size - 1;
        for (const auto& subflow : m_subflows[number])
        {
            if (subflow->Room() > room && subflow->GetTxAvailable() >= size)
            {
                room = subflow->Room();
                widest = ns3::PeekPointer(subflow);
            }
        }
        if (!widest || widest->Send(ns3::Create<ns3::Packet>(size), 0) < 0)
        {
            return;
        }
        m_unsent[number] -= size;
    }
    if (m_unsent[number] == 0)
    {
        m_unsent[number] = -1;
        for (const auto& subflow : m_subflows[number])
        {
            subflow->Close();
        }
    }
}

void
Transfers::Fill(std::uint32_t number, ns3::Ptr<ns3::Socket> socket, std::uint32_t room)
{
    const Host to = m_settings.transfers[number].destination;
    Gate* const gate = m_devices[m_settings.transfers[number].source]->gate();
    // One segment at a time, so that TCP does not split packets.
    while (m_unsent[number] > 0)
    {
        const auto size = static_cast<std::uint32_t>(std::min<std::int64_t>(m_unsent[number], m_segment));
        if (room < size)
        {
            return;
        }
        if (gate)
        {
            gate->Passed(to, size); // before TCP sends it
        }
        if (socket->Send(ns3::Create<ns3::Packet>(size), 0) < 0)
        {
            if (gate)
            {
                gate->Passed(to, -std::int64_t(size));
            }
            return;
        }
        room -= size;
        m_unsent[number] -= size;
    }
    if (m_unsent[number] == 0)
    {
        m_unsent[number] = -1;
        socket->Close();
    }
}

void
Transfers::Accept(Host host, ns3::Ptr<ns3::Socket> socket, const ns3::Address& peer)
{
    const auto from = ns3::InetSocketAddress::ConvertFrom(peer);
    const auto found = m_expected[host].find(std::uint64_t(from.GetIpv4().Get()) << 16 | from.GetPort());
    if (found == m_expected[host].end())
    {
        return;
    }
    const std::uint32_t number = found->second;
    m_expected[host].erase(found);
    m_receivers[number].push_back(socket);
    socket->SetRecvCallback([this, number](ns3::Ptr<ns3::Socket> ready) { Drain(number, ready); });
}

void
Transfers::Drain(std::uint32_t number, ns3::Ptr<ns3::Socket> socket)
{
    TransferResult& its = results[number];
    while (const auto packet = socket->Recv(UINT32_MAX, 0))
    {
        if (!packet->GetSize())
        {
            break;
        }
        its.received += packet->GetSize();
        its.ended = Now();
    }
    if (its.plan->bytes >= 0 && its.received >= static_cast<std::uint64_t>(its.plan->bytes) && !m_senders[number].empty())
    {
        Complete(number);
    }
}

void
Transfers::Complete(std::uint32_t number)
{
    results[number].Forget();
    m_senders[number].clear();
    m_subflows[number].clear();
    for (const auto& receiver : m_receivers[number])
    {
        receiver->SetRecvCallback(ns3::MakeNullCallback<void, ns3::Ptr<ns3::Socket>>());
        receiver->Close();
    }
    m_receivers[number].clear();
    --m_open;
    if (m_settings.all_transfers || Now() < m_settings.seconds)
    {
        for (const std::uint32_t follower : m_followers[number])
        {
            if (--m_awaited[follower] == 0)
            {
                Schedule(follower, m_settings.transfers[follower].start);
            }
        }
    }
    if (m_open == 0 && m_waiting == 0)
    {
        ns3::Simulator::Stop();
    }
}

void
Transfers::Finish()
{
    for (TransferResult& its : results)
    {
        if (its.started >= 0 && (its.plan->bytes < 0 || its.ended < 0))
        {
            its.ended = Now();
        }
        its.AddSubflows();
    }
}

void
Transfers::SampleWindows()
{
    for (TransferResult& its : results)
    {
        if (its.started >= 0 && its.window)
        {
            its.windows.push_back({Now(), its.window});
        }
    }
}

} // namespace sopa
