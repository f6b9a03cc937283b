// Simulates TCP transfers over a Clos fabric. Reads settings from standard input, writes one JSON object per line to standard output.
#include "path_selector.h"
#include "fabric.h"
#include "pings.h"
#include "settings.h"
#include "slots.h"
#include "stack.h"
#include "transfer.h"
#include "wheel_scheduler.h"

#include "ns3/boolean.h"
#include "ns3/config.h"
#include "ns3/data-rate.h"
#include "ns3/global-value.h"
#include "ns3/nstime.h"
#include "ns3/object-factory.h"
#include "ns3/rng-seed-manager.h"
#include "ns3/simulator.h"
#include "ns3/string.h"
#include "ns3/type-id.h"
#include "ns3/uinteger.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>

namespace sopa
{

namespace
{

constexpr std::int64_t MILLISECOND = 1'000'000; // ns
constexpr std::int64_t PATIENCE = 10; // MCS takes for lost what is missing for this part of the least timeout, as agents on Linux do

void
Configure(const Settings& its, std::uint32_t segment)
{
    using ns3::Config::SetDefault;
    SetDefault("ns3::TcpL4Protocol::SocketType", ns3::TypeIdValue(ns3::TypeId::LookupByName("ns3::Tcp" + its.congestion)));
    SetDefault("ns3::TcpSocket::SegmentSize", ns3::UintegerValue(segment));
    SetDefault("ns3::TcpSocket::InitialCwnd", ns3::UintegerValue(its.initial_window));
    SetDefault("ns3::TcpSocket::InitialSlowStartThreshold", ns3::UintegerValue(its.slow_start_threshold));
    SetDefault("ns3::TcpSocket::RcvBufSize", ns3::UintegerValue(its.receive_buffer));
    SetDefault("ns3::TcpSocket::SndBufSize", ns3::UintegerValue(its.send_buffer));
    SetDefault("ns3::TcpSocket::DelAckTimeout", ns3::TimeValue(ns3::TimeStep(its.delayed_ack)));
    SetDefault("ns3::TcpSocketBase::MinRto", ns3::TimeValue(ns3::TimeStep(its.least_timeout)));
    // What ns-3 adds to a round trip, 1 ms, even if the least timeout is shorter.
    SetDefault("ns3::TcpSocketBase::ClockGranularity", ns3::TimeValue(ns3::TimeStep(std::min<std::int64_t>(its.least_timeout, MILLISECOND))));
    SetDefault("ns3::TcpSocketBase::ReTxThreshold", ns3::UintegerValue(its.threshold));
    SetDefault("ns3::TcpSocketBase::Sack", ns3::BooleanValue(its.sack && its.loss_recovery != "ns-3.20"));
    if (its.pacing)
    {
        SetDefault("ns3::TcpSocketState::EnablePacing", ns3::BooleanValue(true));
        SetDefault("ns3::TcpSocketState::MaxPacingRate", ns3::DataRateValue(ns3::DataRate(1'000'000 * its.pacing)));
    }
    SetDefault("ns3::TcpSocketBase::Timestamp", ns3::BooleanValue(its.timestamps));
}

template <std::size_t N>
void
Print(const std::vector<std::array<std::int64_t, N>>& rows)
{
    std::printf("[");
    for (std::size_t row = 0; row < rows.size(); ++row)
    {
        for (std::size_t column = 0; column < N; ++column)
        {
            std::printf("%s%lld", column ? "," : row ? ",[" : "[", static_cast<long long>(rows[row][column]));
        }
        std::printf("]");
    }
    std::printf("]");
}

void
Print(const TransferResult& its)
{
    const auto integer = [](const char* name, auto value) {
        std::printf(",\"%s\":%lld", name, static_cast<long long>(value));
    };
    std::printf("{\"transfer\":%u", its.plan->number);
    integer("started", its.started);
    integer("ended", its.ended);
    integer("received", its.received);
    integer("packets", its.packets);
    integer("reordered", its.reordered);
    integer("retransmitted", its.retransmitted);
    integer("fast_retransmits", its.fast_retransmits);
    integer("timeouts", its.timeouts);
    integer("delay_mean", its.packets ? its.delay_sum / static_cast<std::int64_t>(its.packets) : 0);
    integer("delay_least", its.packets ? its.delay_least : 0);
    integer("delay_most", its.delay_most);
    if (!its.windows.empty())
    {
        std::printf(",\"windows\":");
        Print(its.windows);
    }
    if (!its.series.empty())
    {
        std::printf(",\"series\":");
        for (std::size_t at = 0; at < its.series.size(); ++at)
        {
            std::printf("%c%llu", at ? ',' : '[', static_cast<unsigned long long>(its.series[at]));
        }
        std::printf("]");
    }
    if (!its.arrivals.empty())
    {
        std::printf(",\"arrivals\":");
        Print(its.arrivals);
    }
    std::printf("}\n");
}

// Print the probes of all hosts, and the sections of paths that they have left or put back: time, host, up1, up2, pod, edge (-1 for any),
// whether it was left, and why.
void
Print(const std::vector<ns3::Ptr<Device>>& hosts, const Clos& tree)
{
    std::uint64_t sent = 0, lost = 0;
    std::string left;
    for (Host host = 0; host < hosts.size(); ++host)
    {
        const Prober* const prober = hosts[host]->prober();
        if (!prober)
        {
            continue;
        }
        sent += prober->sent;
        lost += prober->lost;
        for (const auto& [at, what] : prober->changes)
        {
            const Section& section = what.section;
            left += (left.empty() ? "[" : ",[") + std::to_string(at) + ",\"" + tree.NameOf(host) + "\"," +
                    std::to_string(section.up1) + "," + std::to_string(section.up2) + "," + std::to_string(section.pod) + "," +
                    std::to_string(section.edge) + "," + (what.left ? "true" : "false") + ",\"" + what.cause + "\"]";
        }
    }
    std::printf(",\"probes\":%llu,\"probes_lost\":%llu,\"left\":[%s]", static_cast<unsigned long long>(sent),
                static_cast<unsigned long long>(lost), left.c_str());
}

// Print what bad links have done, in the order of the settings; zeros of one whose time has not come.
void
Print(const std::vector<BadLink>& bad, const Fabric& fabric)
{
    std::printf(",\"bad\":[");
    for (const BadLink& one : bad)
    {
        const BadLink& its = fabric.SpoiltBy(DirectionOf(fabric.tree, one.name, one.towards));
        std::printf("%s{\"packets\":%llu,\"lost\":%llu,\"corrupted\":%llu}", &one == bad.data() ? "" : ",",
                    static_cast<unsigned long long>(std::max(its.loss.packets, its.corruption.packets)),
                    static_cast<unsigned long long>(its.loss.hit), static_cast<unsigned long long>(its.corruption.hit));
    }
    std::printf("]");
}

// Print the simulated fabric for comparison with topologies/: the address of each host, and the peer and rate of each port.
int
Dump()
{
    const Settings settings = Read(std::cin);
    Fabric fabric(settings, MakePathSelector(settings));
    const Clos& tree = fabric.tree;
    for (Host host = 0; host < tree.hosts; ++host)
    {
        const std::uint32_t address = tree.AddressOf(host);
        std::printf("host %s %u.%u.%u.%u\n", tree.NameOf(host).c_str(), address >> 24, address >> 16 & 255,
                    address >> 8 & 255, address & 255);
        if (tree.HostOf(address) != host)
        {
            return 1;
        }
    }
    for (LinkId id = 0; id < tree.links; ++id)
    {
        const auto end = tree.EndOf(id);
        if (fabric.link(id).up)
        {
            std::printf("link %s %s %llu\n", end.port.c_str(), end.peer.c_str(),
                        static_cast<unsigned long long>(fabric.link(id).rate()));
        }
    }
    return std::fflush(stdout) ? 1 : 0;
}

// Run an action after a delay in ns, and then periodically as long as it returns true.
void
Repeat(std::int64_t delay, std::int64_t period, const std::function<bool()>& action)
{
    ns3::Simulator::Schedule(ns3::TimeStep(delay), [=] {
        if (action())
        {
            Repeat(period, period, action);
        }
    });
}

int
Simulate()
{
    const Settings settings = Read(std::cin);
    ns3::ObjectFactory scheduler(settings.scheduler == "heap" ? "ns3::HeapScheduler" : "sopa::WheelScheduler");
    ns3::Simulator::SetScheduler(scheduler);
    ns3::RngSeedManager::SetSeed(1);
    ns3::RngSeedManager::SetRun(settings.seed);

    auto selector = MakePathSelector(settings);
    const std::uint32_t segment = settings.packet - 40 - selector->overhead() - (settings.timestamps ? 12 : 0);
    Configure(settings, segment);
    Fabric fabric(settings, std::move(selector));
    std::unique_ptr<SlotArbiter> arbiter;
    if (settings.scheme == "cfr")
    {
        arbiter = std::make_unique<SlotArbiter>(settings, fabric, segment);
    }
    std::vector<ns3::Ptr<ns3::Node>> nodes;
    std::vector<ns3::Ptr<Device>> devices;
    for (Host host = 0; host < fabric.tree.hosts; ++host)
    {
        nodes.push_back(ns3::CreateObject<ns3::Node>());
        devices.push_back(InstallStack(nodes.back(), fabric, host));
        devices.back()->SetBurst(settings.segments, settings.burst_wait);
        if (arbiter)
        {
            devices.back()->SetGate(*arbiter);
        }
        if (settings.channels)
        {
            devices.back()->SetShim(std::make_unique<Shim>(
                settings.channels, segment, settings.least_timeout / PATIENCE, settings.scheme == "sopa-feedback"));
        }
        if (settings.probes && devices.back()->CanProbe())
        {
            devices.back()->SetProber(settings.seed);
        }
        if (settings.scheme == "plb")
        {
            devices.back()->SetPlb(settings.seed + host);
        }
        if (settings.scheme == "reps")
        {
            devices.back()->SetReps(settings.seed + host);
        }
        if (settings.scheme == "sopa-skip")
        {
            devices.back()->SetSkips();
        }
    }
    for (const auto& [name, when] : settings.failures)
    {
        const auto fail = [&fabric, &settings, name = name] {
            fabric.Fail(name);
            if (settings.failure_notice)
            {
                fabric.selector().Learn(fabric);
            }
        };
        if (when <= 0)
        {
            fail();
        }
        else
        {
            ns3::Simulator::Schedule(ns3::TimeStep(when), fail);
        }
    }

    for (const BadLink& one : settings.bad)
    {
        DirectionOf(fabric.tree, one.name, one.towards); // does it exist?
        ns3::Simulator::Schedule(ns3::TimeStep(one.at), [&] { fabric.Spoil(settings, one); });
    }

    const auto hosts = devices;
    Pings pings(settings, devices);
    Transfers transfers(settings, std::move(devices), segment);
    transfers.Start();
    fabric.selector().Start(fabric);
    if (settings.ping)
    {
        pings.Start();
    }
    if (arbiter)
    {
        arbiter->Start();
    }

    std::vector<std::vector<std::uint32_t>> queues(settings.sample ? fabric.tree.links : 0);
    const auto sample = [&] {
        const std::int64_t now = ns3::Simulator::Now().GetTimeStep();
        for (LinkId id = fabric.tree.hosts; id < fabric.tree.links; ++id)
        {
            queues[id].push_back(fabric.link(id).Length(now));
        }
        transfers.SampleWindows();
        return now < 2 * settings.seconds; // bounds the output while a few late transfers finish
    };
    if (settings.sample)
    {
        Repeat(0, settings.sample, sample);
    }
    const auto report = [&] {
        std::uint64_t received = 0;
        for (const TransferResult& its : transfers.results)
        {
            received += its.received;
        }
        std::fprintf(stderr, "%lld %llu\n", static_cast<long long>(ns3::Simulator::Now().GetTimeStep()),
                     static_cast<unsigned long long>(received));
        return true;
    };
    if (settings.progress)
    {
        Repeat(settings.progress, settings.progress, report);
    }

    bool endless = false;
    for (const TransferPlan& plan : settings.transfers)
    {
        endless |= plan.bytes < 0;
    }
    ns3::Simulator::Stop(ns3::TimeStep(endless ? settings.seconds : settings.patience * settings.seconds));
    const auto begin = std::chrono::steady_clock::now();
    ns3::Simulator::Run();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    transfers.Finish();

    for (const TransferResult& its : transfers.results)
    {
        if (its.started >= 0)
        {
            Print(its);
        }
    }
    std::uint64_t dropped = 0, at_hosts = 0;
    std::uint32_t longest = 0;
    for (LinkId id = 0; id < fabric.tree.links; ++id)
    {
        (id < fabric.tree.hosts ? at_hosts : dropped) += fabric.link(id).dropped;
        longest = id < fabric.tree.hosts ? 0 : std::max(longest, fabric.link(id).longest());
    }
    std::printf("{\"simulated\":%lld,\"seconds\":%.3f,\"hops\":%llu,\"dropped\":%llu,\"dropped_at_hosts\":%llu,\"unroutable\":%llu,"
                "\"longest\":%u",
                static_cast<long long>(ns3::Simulator::Now().GetTimeStep()), took.count(),
                static_cast<unsigned long long>(fabric.hops()), static_cast<unsigned long long>(dropped),
                static_cast<unsigned long long>(at_hosts), static_cast<unsigned long long>(fabric.unroutable()), longest);
    if (settings.trim)
    {
        std::printf(",\"trimmed\":%llu", static_cast<unsigned long long>(fabric.trimmed()));
    }
    if (settings.ping)
    {
        std::printf(",\"pings\":%llu,\"round_trips\":[", static_cast<unsigned long long>(pings.sent));
        for (std::size_t at = 0; at < pings.round_trips.size(); ++at)
        {
            std::printf("%s%lld", at ? "," : "", static_cast<long long>(pings.round_trips[at]));
        }
        std::printf("]");
    }
    if (settings.sample)
    {
        std::printf(",\"queues\":{");
        bool first = true;
        for (LinkId id = 0; id < fabric.tree.links; ++id)
        {
            if (std::any_of(queues[id].begin(), queues[id].end(), [](std::uint32_t length) { return length > 0; }))
            {
                std::printf("%s\"%s\":[", first ? "" : ",", fabric.tree.EndOf(id).port.c_str());
                first = false;
                for (std::size_t at = 0; at < queues[id].size(); ++at)
                {
                    std::printf("%s%u", at ? "," : "", queues[id][at]);
                }
                std::printf("]");
            }
        }
        std::printf("}");
    }
    if (settings.probes)
    {
        Print(hosts, fabric.tree);
    }
    if (!settings.bad.empty())
    {
        Print(settings.bad, fabric);
    }
    std::printf("}\n");
    if (std::fflush(stdout) || std::ferror(stdout))
    {
        std::fprintf(stderr, "error: the results could not be written\n");
        return 1;
    }
    // Skip destructors: they take seconds for 3,456 hosts, and the kernel releases the memory anyway.
    std::_Exit(0);
}

} // namespace

} // namespace sopa

int
main(int count, char** words)
{
    int status = 2;
    try
    {
        status = count == 2 && std::string(words[1]) == "dump" ? sopa::Dump() : sopa::Simulate();
    }
    catch (const std::invalid_argument& error)
    {
        std::fprintf(stderr, "%s\n", error.what());
    }
    // Skip static destructors: those of ns-3 as a static library crash because of their order. All output is flushed.
    std::_Exit(std::fflush(stdout) ? 1 : status);
}
