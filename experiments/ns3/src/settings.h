// The settings of a run, read line by line from standard input.
#pragma once

#include "bad_links.h"
#include "clos.h"

#include <array>
#include <cstdint>
#include <istream>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace sopa
{

struct TransferPlan
{
    std::uint32_t number;
    Host source, destination;
    std::int64_t bytes;  // -1: unlimited
    std::int64_t start;  // ns after the start of the run, or after the end of the last transfer of `after`
    std::vector<std::uint32_t> after; // numbers of the transfers that have to end first
    bool traced;
};

// An order of candidate paths, up1 and up2 of each. A path may occur several times.
using PathOrder = std::vector<std::pair<std::uint8_t, std::uint8_t>>;

// What senders of one rack use to another from a time on.
struct TimedOrder
{
    std::int64_t from;  // ns
    std::int64_t order; // its index, or -1 for all candidate paths in round-robin order
};

struct Settings
{
    Shape fabric;
    std::array<std::uint64_t, 3> rates{1'000'000'000, 1'000'000'000, 1'000'000'000}; // bit/s, by Clos::LevelOf
    double core_share = 1.0; // of the rates of all links above aggregation switches
    std::vector<std::pair<std::string, std::uint64_t>> link_rates; // bit/s of the links with another rate, by name
    std::vector<std::string> absent;                               // links that are not there
    std::vector<Host> no_label;                                    // hosts that may not choose paths
    std::vector<PathOrder> orders;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<TimedOrder>> order_of; // by racks; each in the order of time
    std::int64_t delay = 25;                                        // ns, of each link
    std::uint32_t queue = 100, host_queue = 1000;                   // packets
    std::uint32_t packet = 1500;                                    // bytes, IP and TCP headers included
    std::string scheme = "sopa", first_path = "sender", path_order = "aggregation", congestion = "NewReno", scheduler = "wheel";
    std::string loss_recovery = "ns-3.37"; // or ns-3.20
    std::string hash = "own";              // per switch, or the same in all
    std::uint32_t threshold = 10, initial_window = 10, receive_buffer = 131072, send_buffer = 131072;
    std::uint32_t slow_start_threshold = UINT32_MAX; // bytes, of a new connection
    bool sack = true, timestamps = false;
    std::int64_t least_timeout = 200'000'000, delayed_ack = 1'000'000; // ns
    std::uint32_t segments = 1;         // packets of a burst, which share a label, or a channel
    std::int64_t burst_wait = 500'000;  // ns that a host waits for the rest of a burst
    std::uint32_t channels = 0; // of MCS; 0: hosts have no shim
    std::uint32_t subflows = 1; // of a transfer
    std::uint32_t ecn = 0;      // packets in a queue above which it marks; 0: no ECN
    std::uint32_t ecn_bytes = 0; // the same in bytes; 0: `ecn` alone counts
    bool ecn_at_hosts = false;  // the queues of hosts mark, too
    bool acks_first = false;    // in a host's own queue, as with Linux' fq and fq_codel
    std::uint32_t trim = 0;     // packets in a switch's queue above which it cuts data to headers; 0: none
    bool trim_repair = true;    // senders send again at once what has been cut, or TCP finds it by itself
    std::uint64_t pacing = 0;   // maximum payload rate of a connection in Mbit/s; 0: no pacing
    std::int64_t spread = 0; // ns; simultaneous starts are spread randomly over this interval
    std::int64_t hedera_period = 5'000'000'000, resequencing = 200'000; // ns
    std::int64_t flowlet_gap = 500'000;                                  // ns, of letflow
    std::uint32_t drill_samples = 2, drill_memory = 1;                   // queues
    std::uint32_t flowcell = 65'536;                                     // bytes
    std::uint64_t seed = 1;
    std::int64_t seconds = 10'000'000'000;  // ns until transfers without a size end and no follower starts
    bool all_transfers = false;             // followers start after that, too
    std::uint32_t patience = 2;             // multiple of `seconds` after which transfers with a size are aborted
    std::uint32_t slot_packets = 1, slot_guard = 4; // of cfr: packets of a slot; percent of it for what has no slot
    std::int64_t arbiter_delay = 10'000;            // ns from a host to the arbiter, and from it to a host
    std::string arbiter_order = "min-max-min", arbiter_paths = "colouring";
    std::string demand = "flow"; // what the arbiter knows of: whole flows, data passed to sockets, or packets of TCP
    std::int64_t ping = 0;                  // ns, mean gap between pings beside each transfer without a size; 0: none
    std::int64_t sample = 0;                // ns between samples of queues and windows; 0: none
    std::int64_t series = 0;                // ns of an interval of the transfers' throughput; 0: none
    bool probes = false;                    // hosts probe paths and leave bad ones
    bool failure_notice = true;             // switches and senders exclude a failed element immediately
    std::int64_t progress = 0;              // ns of simulated time between reports on standard error; 0: none
    std::vector<std::pair<std::string, std::int64_t>> failures; // link or switch, and time in ns
    std::vector<BadLink> bad;
    std::vector<TransferPlan> transfers;
};

// Throws std::invalid_argument that names the line and the problem.
Settings Read(std::istream& lines);

} // namespace sopa
