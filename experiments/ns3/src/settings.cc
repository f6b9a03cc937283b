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
        {"k", into(its.k)},
        {"rate", into(its.rate)},
        {"core-rate", into(its.core_rate)},
        {"delay", into(its.delay)},
        {"queue", into(its.queue)},
        {"host-queue", into(its.host_queue)},
        {"packet", into(its.packet)},
        {"scheme", into(its.scheme)},
        {"first-path", into(its.first_path)},
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
        {"pacing", into(its.pacing)},
        {"spread", into(its.spread)},
        {"hedera-period", into(its.hedera_period)},
        {"resequencing", into(its.resequencing)},
        {"seed", into(its.seed)},
        {"seconds", into(its.seconds)},
        {"all-transfers", into(its.all_transfers)},
        {"patience", into(its.patience)},
        {"sample", into(its.sample)},
        {"progress", into(its.progress)},
        {"fail",
         [&](Words& words) {
             const auto name = Value<std::string>(words);
             its.failures.emplace_back(name, Value<std::int64_t>(words));
         }},
        {"transfer",
         [&](Words& words) {
             TransferPlan plan{};
             plan.number = its.transfers.size();
             plan.source = Value<Host>(words);
             plan.destination = Value<Host>(words);
             plan.bytes = Value<std::int64_t>(words);
             plan.start = Value<std::int64_t>(words);
             plan.before = Value<std::int64_t>(words);
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
    if (its.k < 2 || its.k > 128 || its.k % 2)
    {
        throw std::invalid_argument("k must be an even number from 2 to 128, not " + std::to_string(its.k));
    }
    if (its.threshold < 1)
    {
        throw std::invalid_argument("threshold must be 1 or more");
    }
    if (its.segments < 1 || (its.segments > 1 && its.scheme != "sopa"))
    {
        throw std::invalid_argument("segments must be 1 or more, and 1 with other schemes than sopa");
    }
    CheckOneOf("scheduler", its.scheduler, {"wheel", "heap"});
    CheckOneOf("hash", its.hash, {"own", "same"});
    CheckOneOf("loss-recovery", its.loss_recovery, {"ns-3.37", "ns-3.20"});
    CheckOneOf("first-path", its.first_path, {"zero", "random", "sender", "receiver"});
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
    const Tree tree(its.k);
    for (const TransferPlan& plan : its.transfers)
    {
        if (plan.source >= tree.hosts || plan.destination >= tree.hosts || plan.source == plan.destination)
        {
            throw std::invalid_argument("transfer " + std::to_string(plan.number) + " does not connect two different hosts of the fabric");
        }
        if (plan.before >= static_cast<std::int64_t>(plan.number))
        {
            throw std::invalid_argument("transfer " + std::to_string(plan.number) + " waits for a later transfer");
        }
    }
    return its;
}

} // namespace sopa
