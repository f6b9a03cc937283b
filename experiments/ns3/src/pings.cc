#include "pings.h"

#include "ns3/simulator.h"

#include <cmath>
#include <set>
#include <utility>

namespace sopa
{

Pings::Pings(const Settings& settings, const std::vector<ns3::Ptr<Device>>& devices)
    : m_settings(settings),
      m_devices(devices),
      m_random(settings.seed + 2)
{
}

void
Pings::Start()
{
    std::set<std::pair<Host, Host>> pairs;
    for (const TransferPlan& plan : m_settings.transfers)
    {
        if (plan.bytes < 0 && pairs.emplace(plan.source, plan.destination).second)
        {
            Device& device = *m_devices[plan.source];
            device.OnRoundTrip([this](std::int64_t time) { round_trips.push_back(time); });
            Next(device, plan.destination);
        }
    }
}

void
Pings::Next(Device& device, Host destination)
{
    // Exponential gaps: periodic ones might fall on the same part of a slot each time.
    const double uniform = static_cast<double>(m_random() >> 11) * 0x1p-53;
    const auto gap = static_cast<std::int64_t>(-std::log1p(-uniform) * static_cast<double>(m_settings.ping)) + 1;
    ns3::Simulator::ScheduleWithContext(device.GetNode()->GetId(), ns3::TimeStep(gap), [this, &device, destination] {
        ++sent;
        device.SendPing(destination);
        Next(device, destination);
    });
}

} // namespace sopa
