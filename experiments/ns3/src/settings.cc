#include "settings.h"

#include <functional>
#include <map>
#include <sstream>
#include <stdexcept>

namespace sopa
{

namespace
{

template <typename T>
T
Value(std::istringstream& words)
{
    T value;
    if (!(words >> value))
    {
        throw std::invalid_argument("a value is missing or not a number");
    }
    return value;
}

std::uint64_t
Rate(std::istringstream& words)
{
    const auto rate = Value<std::uint64_t>(words);
    if (!rate)
    {
        throw std::invalid_argument("a rate is 1 bit/s or more");
    }
    return rate;
}

std::uint8_t
Index(std::istringstream& words)
{
    const auto index = Value<std::uint32_t>(words);
    if (index > UINT8_MAX)
    {
        throw std::invalid_argument("the index of an uplink is one byte, not " + std::to_string(index));
    }
    return index;
}

// Read "3,17"; "-1" is none.
std::vector<std::uint32_t>
Numbers(const std::string& text)
{
    std::vector<std::uint32_t> found;
    std::istringstream parts(text == "-1" ? "" : text);
    for (std::string part; std::getline(parts, part, ',');)
    {
        std::istringstream one(part);
        found.push_back(Value<std::uint32_t>(one));
    }
    return found;
}

void
CheckOneOf(const std::string& name, const std::string& value, const std::vector<std::string>& allowed)
{
    std::string expected;
    for (const std::string& one : allowed)
    {
        if (value == one)
        {
            return;
        }
        expected += (expected.empty() ? "" : " or ") + one;
    }
    throw std::invalid_argument(name + " must be " + expected + ", not " + value);
}

} // namespace

Settings
Read(std::istream& lines)
{
    Settings its;
    using Words = std::istringstream;
    const auto into = [](auto& value) {
        return [&value](Words& words) { value = Value<std::decay_t<decltype(value)>>(words); };
    };
    const std::map<std::string, std::function<void(Words&)>> known{
        {"fabric",
         [&](Words& words) {
             Shape& shape = its.fabric;
             for (std::uint32_t* number : {&shape.pods, &shape.edges, &shape.aggregations, &shape.cores, &shape.hosts})
             {
                 *number = Value<std::uint32_t>(words);
             }
             Clos{shape}; // is it one?
         }},
        {"rates",
         [&](Words& words) {
             for (std::uint64_t& rate : its.rates)
             {
                 rate = Rate(words);
             }
         }},
        {"core-share", into(its.core_share)},
        {"link",
         [&](Words& words) {
             const auto name = Value<std::string>(words);
             its.link_rates.emplace_back(name, Rate(words));
         }},
        {"absent", [&](Words& words) { its.absent.push_back(Value<std::string>(words)); }},
        {"no-label", [&](Words& words) { its.no_label.push_back(Value<Host>(words)); }},
        {"order",
         [&](Words& words) {
             PathOrder& order = its.orders.emplace_back();
             while (words >> std::ws && !words.eof())
             {
                 const auto up1 = Index(words);
                 order.emplace_back(up1, Index(words));
             }
         }},
        {"use",
         [&](Words& words) {
             const auto from = Value<std::uint32_t>(words);
             auto& orders = its.order_of[{from, Value<std::uint32_t>(words)}];
             TimedOrder one{Value<std::int64_t>(words), Value<std::int64_t>(words)};
             if (one.order >= static_cast<std::int64_t>(its.orders.size()))
             {
                 throw std::invalid_argument("there is no order " + std::to_string(one.order));
             }
             orders.push_back(one);
         }},
        {"delay", into(its.delay)},
        {"queue", into(its.queue)},
        {"host-queue", into(its.host_queue)},
        {"packet", into(its.packet)},
        {"scheme", into(its.scheme)},
        {"first-path", into(its.first_path)},
        {"path-order", into(its.path_order)},
        {"congestion", into(its.congestion)},
        {"hash", into(its.hash)},
        {"loss-recovery", into(its.loss_recovery)},
        {"scheduler", into(its.scheduler)},
        {"threshold", into(its.threshold)},
        {"initial-window", into(its.initial_window)},
        {"slow-start-threshold", into(its.slow_start_threshold)},
        {"receive-buffer", into(its.receive_buffer)},
        {"send-buffer", into(its.send_buffer)},
        {"sack", into(its.sack)},
        {"timestamps", into(its.timestamps)},
        {"least-timeout", into(its.least_timeout)},
        {"delayed-ack", into(its.delayed_ack)},
        {"segments", into(its.segments)},
        {"burst-wait", into(its.burst_wait)},
        {"channels", into(its.channels)},
        {"subflows", into(its.subflows)},
        {"ecn", into(its.ecn)},
        {"ecn-bytes", into(its.ecn_bytes)},
        {"ecn-at-hosts", into(its.ecn_at_hosts)},
        {"acks-first", into(its.acks_first)},
        {"trim", into(its.trim)},
        {"trim-repair", into(its.trim_repair)},
        {"pacing", into(its.pacing)},
        {"spread", into(its.spread)},
        {"hedera-period", into(its.hedera_period)},
        {"resequencing", into(its.resequencing)},
        {"flowlet-gap", into(its.flowlet_gap)},
        {"drill-samples", into(its.drill_samples)},
        {"drill-memory", into(its.drill_memory)},
        {"flowcell", into(its.flowcell)},
        {"seed", into(its.seed)},
        {"seconds", into(its.seconds)},
        {"all-transfers", into(its.all_transfers)},
        {"patience", into(its.patience)},
        {"slot-packets", into(its.slot_packets)},
        {"slot-guard", into(its.slot_guard)},
        {"arbiter-delay", into(its.arbiter_delay)},
        {"arbiter-order", into(its.arbiter_order)},
        {"arbiter-paths", into(its.arbiter_paths)},
        {"demand", into(its.demand)},
        {"ping", into(its.ping)},
        {"sample", into(its.sample)},
        {"series", into(its.series)},
        {"probes", into(its.probes)},
        {"failure-notice", into(its.failure_notice)},
        {"progress", into(its.progress)},
        {"fail",
         [&](Words& words) {
             const auto name = Value<std::string>(words);
             its.failures.emplace_back(name, Value<std::int64_t>(words));
         }},
        {"bad",
         [&](Words& words) {
             BadLink& one = its.bad.emplace_back();
             one.name = Value<std::string>(words);
             one.towards = Value<std::string>(words);
             one.at = Value<std::int64_t>(words);
             for (Fault* fault : {&one.loss, &one.corruption})
             {
                 fault->threshold = Value<std::uint64_t>(words);
                 fault->seed = Value<std::uint64_t>(words);
             }
             one.rate = Value<std::uint64_t>(words);
         }},
        {"transfer",
         [&](Words& words) {
             TransferPlan plan{};
             plan.number = its.transfers.size();
             plan.source = Value<Host>(words);
             plan.destination = Value<Host>(words);
             plan.bytes = Value<std::int64_t>(words);
             plan.start = Value<std::int64_t>(words);
             plan.after = Numbers(Value<std::string>(words));
             plan.traced = Value<int>(words);
             its.transfers.push_back(plan);
         }},
    };
    std::string line;
    for (std::size_t number = 1; std::getline(lines, line); ++number)
    {
        Words words(line);
        std::string name;
        if (!(words >> name))
        {
            continue;
        }
        const auto found = known.find(name);
        try
        {
            if (found == known.end())
            {
                throw std::invalid_argument("unknown setting " + name);
            }
            found->second(words);
        }
        catch (const std::invalid_argument& error)
        {
            throw std::invalid_argument("line " + std::to_string(number) + ": " + error.what());
        }
    }
    if (!(its.core_share > 0))
    {
        throw std::invalid_argument("core-share must be above 0");
    }
    if (its.threshold < 1)
    {
        throw std::invalid_argument("threshold must be 1 or more");
    }
    if (its.segments < 1 || (its.segments > 1 && its.scheme != "sopa" && its.scheme != "mcs" && its.scheme != "mcs-ports"))
    {
        throw std::invalid_argument("segments must be 1 or more, and 1 with other schemes than sopa, mcs and mcs-ports");
    }
    const bool has_shim = its.scheme == "mcs" || its.scheme == "mcs-ports" || its.scheme == "ecmp-vcc" ||
                          its.scheme == "sopa-feedback";
    if (its.channels > 16 || (its.channels > 0) != has_shim)
    {
        throw std::invalid_argument("channels must be from 1 to 16 with MCS and ecmp-vcc, and 0 with other schemes, not " +
                                    std::to_string(its.channels));
    }
    if (its.channels && !its.sack)
    {
        throw std::invalid_argument("channels require sack: without it, a window update cannot be told from a duplicate");
    }
    if (its.subflows < 1 || its.subflows > 64)
    {
        throw std::invalid_argument("subflows must be from 1 to 64, not " + std::to_string(its.subflows));
    }
    if (its.subflows > 1 && its.loss_recovery == "ns-3.20")
    {
        throw std::invalid_argument("subflows have no loss-recovery ns-3.20");
    }
    if (its.trim && (its.channels || its.subflows > 1 || its.loss_recovery == "ns-3.20" || its.scheme == "cfr"))
    {
        throw std::invalid_argument("trim is not for the schemes of MCS, mptcp, cfr, and loss-recovery ns-3.20");
    }
    if (its.drill_samples < 1 || its.flowcell < 1)
    {
        throw std::invalid_argument("drill-samples and flowcell must be 1 or more");
    }
    if (its.slot_packets < 1 || its.slot_packets > 64)
    {
        throw std::invalid_argument("slot-packets must be from 1 to 64, not " + std::to_string(its.slot_packets));
    }
    if (its.slot_guard > 50)
    {
        throw std::invalid_argument("slot-guard must be from 0 to 50 percent, not " + std::to_string(its.slot_guard));
    }
    CheckOneOf("arbiter-order", its.arbiter_order, {"min-max-min", "alternating", "smallest"});
    CheckOneOf("arbiter-paths", its.arbiter_paths, {"colouring", "next-fit-ga", "next-fit", "first-fit", "first-fit-ga"});
    CheckOneOf("demand", its.demand, {"flow", "socket", "packet"});
    CheckOneOf("scheduler", its.scheduler, {"wheel", "heap"});
    CheckOneOf("hash", its.hash, {"own", "same"});
    CheckOneOf("loss-recovery", its.loss_recovery, {"ns-3.37", "ns-3.20"});
    CheckOneOf("path-order", its.path_order, {"aggregation", "core"}); // what changes with every packet
    CheckOneOf("first-path", its.first_path, {"zero", "random", "hash", "sender", "receiver"});
    if (its.loss_recovery == "ns-3.20" && its.congestion != "NewReno")
    {
        throw std::invalid_argument("loss-recovery ns-3.20 requires congestion NewReno, not " + its.congestion);
    }
    if (its.receive_buffer < its.send_buffer)
    {
        // or ns-3 3.37 crashes in TcpRateLinux::SkbSent
        throw std::invalid_argument("receive-buffer must not be below send-buffer, " + std::to_string(its.send_buffer));
    }
    if (its.packet < 100 || its.packet > 65'000)
    {
        throw std::invalid_argument("packet must be from 100 to 65000 bytes, not " + std::to_string(its.packet));
    }
    if (its.probes && its.scheme != "sopa")
    {
        throw std::invalid_argument("probes are for the scheme sopa, not for " + its.scheme);
    }
    const Clos tree(its.fabric);
    for (const TransferPlan& plan : its.transfers)
    {
        if (plan.source >= tree.hosts || plan.destination >= tree.hosts || plan.source == plan.destination)
        {
            throw std::invalid_argument("transfer " + std::to_string(plan.number) + " does not connect two different hosts of the fabric");
        }
        for (const std::uint32_t before : plan.after)
        {
            if (before >= plan.number)
            {
                throw std::invalid_argument("transfer " + std::to_string(plan.number) + " waits for a later transfer");
            }
        }
    }
    return its;
}

} // namespace sopa
