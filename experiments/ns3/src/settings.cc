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
        throw std::invalid_argument("a value is missing, or is no number");
    }
    return value;
}

} // namespace

Settings
Read(std::istream& lines)
{
    Settings its;
    using Words = std::istringstream;
    const std::map<std::string, std::function<void(Words&)>> known{
        {"k", [&](Words& words) { its.k = Value<std::uint32_t>(words); }},
        {"rate", [&](Words& words) { its.rate = Value<std::uint64_t>(words); }},
        {"core-rate", [&](Words& words) { its.core_rate = Value<std::uint64_t>(words); }},
        {"delay", [&](Words& words) { its.delay = Value<std::int64_t>(words); }},
        {"queue", [&](Words& words) { its.queue = Value<std::uint32_t>(words); }},
        {"host-queue", [&](Words& words) { its.host_queue = Value<std::uint32_t>(words); }},
        {"frame-overhead", [&](Words& words) { its.frame_overhead = Value<std::uint32_t>(words); }},
        {"packet", [&](Words& words) { its.packet = Value<std::uint32_t>(words); }},
        {"scheme", [&](Words& words) { its.scheme = Value<std::string>(words); }},
        {"first-path", [&](Words& words) { its.first_path = Value<std::string>(words); }},
        {"congestion", [&](Words& words) { its.congestion = Value<std::string>(words); }},
        {"hash", [&](Words& words) { its.hash = Value<std::string>(words); }},
        {"loss-recovery", [&](Words& words) { its.loss_recovery = Value<std::string>(words); }},
        {"scheduler", [&](Words& words) { its.scheduler = Value<std::string>(words); }},
        {"threshold", [&](Words& words) { its.threshold = Value<std::uint32_t>(words); }},
        {"initial-window", [&](Words& words) { its.initial_window = Value<std::uint32_t>(words); }},
        {"slow-start-threshold", [&](Words& words) { its.slow_start_threshold = Value<std::uint32_t>(words); }},
        {"receive-buffer", [&](Words& words) { its.receive_buffer = Value<std::uint32_t>(words); }},
        {"send-buffer", [&](Words& words) { its.send_buffer = Value<std::uint32_t>(words); }},
        {"sack", [&](Words& words) { its.sack = Value<int>(words); }},
        {"timestamps", [&](Words& words) { its.timestamps = Value<int>(words); }},
        {"least-timeout", [&](Words& words) { its.least_timeout = Value<std::int64_t>(words); }},
        {"delayed-ack", [&](Words& words) { its.delayed_ack = Value<std::int64_t>(words); }},
        {"pacing", [&](Words& words) { its.pacing = Value<std::uint64_t>(words); }},
        {"spread", [&](Words& words) { its.spread = Value<std::int64_t>(words); }},
        {"hedera-period", [&](Words& words) { its.hedera_period = Value<std::int64_t>(words); }},
        {"resequencing", [&](Words& words) { its.resequencing = Value<std::int64_t>(words); }},
        {"seed", [&](Words& words) { its.seed = Value<std::uint64_t>(words); }},
        {"seconds", [&](Words& words) { its.seconds = Value<std::int64_t>(words); }},
        {"all-transfers", [&](Words& words) { its.all_transfers = Value<int>(words); }},
        {"patience", [&](Words& words) { its.patience = Value<std::uint32_t>(words); }},
        {"sample", [&](Words& words) { its.sample = Value<std::int64_t>(words); }},
        {"progress", [&](Words& words) { its.progress = Value<std::int64_t>(words); }},
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
                throw std::invalid_argument("there is no setting " + name);
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
    if (its.scheduler != "wheel" && its.scheduler != "heap")
    {
        throw std::invalid_argument("scheduler is wheel or heap, not " + its.scheduler);
    }
    if (its.hash != "own" && its.hash != "same")
    {
        throw std::invalid_argument("hash is own or same, not " + its.hash);
    }
    if (its.loss_recovery != "ns-3.37" && its.loss_recovery != "ns-3.20")
    {
        throw std::invalid_argument("loss-recovery is ns-3.37 or ns-3.20, not " + its.loss_recovery);
    }
    if (its.loss_recovery == "ns-3.20" && its.congestion != "NewReno")
    {
        throw std::invalid_argument("loss-recovery ns-3.20 is NewReno's, not that of " + its.congestion);
    }
    if (its.receive_buffer < its.send_buffer)
    {
        // ns-3 3.37 crashes in TcpRateLinux::SkbSent
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
            throw std::invalid_argument("transfer " + std::to_string(plan.number) + " is between no two hosts of the fabric");
        }
        if (plan.before >= static_cast<std::int64_t>(plan.number))
        {
            throw std::invalid_argument("transfer " + std::to_string(plan.number) + " waits for a later one");
        }
    }
    return its;
}

} // namespace sopa
