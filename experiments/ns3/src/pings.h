// Small requests that are answered immediately, as ping's: their round trips are what a message waits in queues.
#pragma once

#include "device.h"
#include "settings.h"

#include <cstdint>
#include <random>
#include <vector>

namespace sopa
{

class Pings
{
  public:
    Pings(const Settings& settings, const std::vector<ns3::Ptr<Device>>& devices);

    // Begin to send, from the source of each transfer without a size to its destination, with random gaps.
    void Start();

    std::vector<std::int64_t> round_trips; // ns, in the order of answers
    std::uint64_t sent = 0;

  private:
    void Next(Device& device, Host destination);

    const Settings& m_settings;
    const std::vector<ns3::Ptr<Device>> m_devices;
    std::mt19937_64 m_random;
};

} // namespace sopa
