// The settings of a run, read line by line from standard input.
#pragma once

#include "tree.h"

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

namespace sopa
{

struct TransferPlan
{
    std::uint32_t number;
    Host source, destination;
    std::int64_t bytes;  // -1: unlimited
    std::int64_t start;  // ns after the start of the run, or after the end of transfer `before`
    std::int64_t before; // number of the transfer that has to end first, or -1
    bool traced;
};

struct Settings
{
    std::uint32_t k = 4;
    std::uint64_t rate = 1'000'000'000, core_rate = 1'000'000'000; // bit/s
    std::int64_t delay = 25;                                        // ns, of each link
    std::uint32_t queue = 100, host_queue = 1000;                   // packets
    std::uint32_t packet = 1500;                                    // bytes, IP and TCP headers included
    std::string scheme = "sopa", first_path = "sender", congestion = "NewReno", scheduler = "wheel";
    std::string loss_recovery = "ns-3.37"; // or ns-3.20
    std::string hash = "own";              // per switch, or the same in all
    std::uint32_t threshold = 10, initial_window = 10, receive_buffer = 131072, send_buffer = 131072;
    std::uint32_t slow_start_threshold = UINT32_MAX; // bytes, of a new connection
    bool sack = true, timestamps = false;
    std::int64_t least_timeout = 200'000'000, delayed_ack = 1'000'000; // ns
    std::uint32_t segments = 1;         // packets of a burst, which share a label
    std::int64_t burst_wait = 500'000;  // ns that a host waits for the rest of a burst
    std::uint64_t pacing = 0;   // maximum payload rate of a connection in Mbit/s; 0: no pacing
    std::int64_t spread = 0; // ns; simultaneous starts are spread randomly over this interval
    std::int64_t hedera_period = 5'000'000'000, resequencing = 200'000; // ns
    std::uint64_t seed = 1;
    std::int64_t seconds = 10'000'000'000;  // ns until transfers without a size end and no follower starts
    bool all_transfers = false;             // followers start after that, too
    std::uint32_t patience = 2;             // multiple of `seconds` after which transfers with a size are aborted
    std::int64_t sample = 0;                // ns between samples of queues and windows; 0: none
    std::int64_t progress = 0;              // ns of simulated time between reports on standard error; 0: none
    std::vector<std::pair<std::string, std::int64_t>> failures; // link or switch, and time in ns
    std::vector<TransferPlan> transfers;
};

// Throws std::invalid_argument that names the line and the problem.
Settings Read(std::istream& lines);

} // namespace sopa
