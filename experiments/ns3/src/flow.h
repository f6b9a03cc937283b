// One direction of a TCP connection: its state at the sending host and at the switches.
#pragma once

#include "clos.h"

#include <cstdint>
#include <vector>

namespace sopa
{

struct PathSet;

constexpr std::uint64_t HASH_FACTOR = 0x9e3779b97f4a7c15ull; // of the numbers that `Flow::hash` is made of
struct TransferResult;

enum class Message : std::uint8_t
{
    SEGMENT, // of TCP
    PING,
    ANSWER,
    PROBE,
    PROBE_ANSWER,
    SWITCH // from a switch to another one (ConWeave)
};

struct Flow
{
    Host source, destination;
    std::uint64_t hash;                     // of addresses and ports; input of ECMP
    std::uint32_t ports = 0;                // source << 16 | destination
    std::int32_t delay = 0;                 // ns, of the last data in the other direction, if acknowledgements say so (Swift)
    std::uint16_t channel = 0;              // of the packets that are sent now: taken off the source port (MCS, PLB, REPS)
    bool capable = false;                   // of ECN, the packets that are sent now (MCS)
    TransferResult* transfer = nullptr;            // transfer whose data it carries; null for acknowledgements
    const PathSet* paths = nullptr;         // those of version `version`; owned by the path selector
    std::uint32_t version = 0;
    std::uint32_t next = 0;                 // position in the path set (round-robin at the sender)
    std::uint64_t bytes = 0;                // sent, TCP headers included (flowcells)
    std::vector<std::uint32_t> at_switches; // per-flow counters of the switches on the way up (PLTS)
    std::uint64_t counted = 0;              // bytes at the edge switch since the last poll (Hedera)
    Message message = Message::SEGMENT;     // what its packets are
    bool placed = false;                    // true if Hedera has placed it on a path
    std::uint8_t placed_up1 = 0, placed_up2 = 0;
};

} // namespace sopa
