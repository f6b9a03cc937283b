#include "path_selector.h"

#include "hedera.h"

#include <algorithm>
#include <functional>
#include <stdexcept>

namespace sopa
{

Choice::Choice(const Settings& settings)
    : m_tree(settings.k),
      m_random(settings.seed),
      m_first_path(settings.first_path)
{
    m_within_rack.all = {{0xff, 0xff}};
    for (std::uint32_t j = 0; j < m_tree.half; ++j)
    {
        m_within_pod.all.emplace_back(j, 0xff);
    }
    for (std::uint32_t i = 0; i < m_tree.half; ++i)
    {
        for (std::uint32_t j = 0; j < m_tree.half; ++j)
        {
            m_between_pods.all.emplace_back(j, i);
        }
    }
    Complete(m_within_pod);
    Complete(m_between_pods);
    if (m_first_path != "zero" && m_first_path != "random" && m_first_path != "sender" && m_first_path != "receiver")
    {
        throw std::invalid_argument("first-path is zero, random, sender or receiver, not " + m_first_path);
    }
}

void
Choice::Complete(Ways& ways) const
{
    ways.second.assign(m_tree.half, {});
    for (const auto& [up1, up2] : ways.all)
    {
        if (ways.second[up1].empty())
        {
            ways.first.push_back(up1);
        }
        ways.second[up1].push_back(up2);
    }
}

void
Choice::Begin(Flow& flow)
{
    const auto& all = WaysOf(flow).all;
    const auto of_host = [&](Host host) { return m_tree.RackOf(host) % m_tree.half * m_tree.half + m_tree.PlaceOf(host); };
    std::uint32_t at = 0;
    if (m_first_path == "random")
    {
        at = Random(static_cast<std::uint32_t>(std::max<std::size_t>(1, all.size())));
    }
    else if (m_first_path == "sender")
    {
        at = of_host(flow.source);
    }
    else if (m_first_path == "receiver")
    {
        at = of_host(flow.destination);
    }
    flow.next = all.empty() ? 0 : at % all.size();
}

void
Choice::Learn(Fabric& fabric)
{
    m_fabric = &fabric;
    m_left.clear();
}

const Ways&
Choice::WaysOf(const Flow& flow)
{
    const std::uint32_t from = m_tree.RackOf(flow.source), to = m_tree.RackOf(flow.destination);
    const Ways& whole = from == to                                                         ? m_within_rack
                        : m_tree.PodOf(flow.source) == m_tree.PodOf(flow.destination) ? m_within_pod
                                                                                        : m_between_pods;
    if (!m_fabric || from == to)
    {
        return whole;
    }
    const auto [found, made] = m_left.try_emplace({from, to});
    Ways& left = found->second;
    if (made)
    {
        const std::uint32_t pod = from / m_tree.half, last = to / m_tree.half;
        for (const auto& [up1, up2] : whole.all)
        {
            bool works = m_fabric->link(m_tree.FromEdge(from, up1)).up &&
                         m_fabric->link(m_tree.ToEdge(last, up1, to % m_tree.half)).up;
            if (works && pod != last)
            {
                works = m_fabric->link(m_tree.FromAggregation(pod, up1, up2)).up &&
                        m_fabric->link(m_tree.ToPod(up1, up2, last)).up;
            }
            if (works)
            {
                left.all.emplace_back(up1, up2);
            }
        }
        Complete(left);
    }
    return left;
}

void
InSwitches::AtEdge(Flight& flight, Fabric&)
{
    const Ways& ways = WaysOf(*flight.flow);
    if (!ways.first.empty())
    {
        flight.up1 = ways.first[Next(flight, 0, ways.first.size())];
    }
}

void
InSwitches::AtAggregation(Flight& flight, Fabric&)
{
    const auto& second = WaysOf(*flight.flow).second[flight.up1];
    if (!second.empty())
    {
        flight.up2 = second[Next(flight, 1 + flight.up1, second.size())];
    }
}

Hash::Hash(const Settings& settings)
    : InSwitches(settings),
      m_same(settings.hash == "same")
{
}

std::size_t
Hash::Next(Flight& flight, std::uint32_t at, std::size_t count)
{
    const std::uint64_t which = m_same ? 1 : 1 + at + (m_tree.half + 1) * m_tree.RackOf(flight.source);
    std::uint64_t mixed = flight.flow->hash + 0x9e3779b97f4a7c15ull * which;
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9ull;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebull;
    return (mixed ^ mixed >> 31) % count;
}

namespace
{

// Every packet of a flow takes the next path, and carries it (SOPA paper, sections 3.3 and 3.4).
class Sopa : public Choice
{
  public:
    using Choice::Choice;

    std::uint32_t overhead() const override { return 4; }
    bool labels() const override { return true; }

    void AtHost(Flow& flow, std::uint8_t& up1, std::uint8_t& up2) override
    {
        const auto& all = WaysOf(flow).all;
        if (!all.empty())
        {
            flow.next = flow.next + 1 < all.size() ? flow.next + 1 : 0;
            std::tie(up1, up2) = all[flow.next];
        }
    }
};

// The sender chooses the core switch that each packet bounces off, round-robin in digit-reversed order, which is the interleaved
// one; IP in IP takes it there, and the receiver puts packets in order again (Cao et al., CoNEXT 2013).
class Drb : public Sopa
{
  public:
    explicit Drb(const Settings& settings)
        : Sopa(settings),
          m_resequencing(settings.resequencing)
    {
    }

    std::uint32_t overhead() const override { return 20; }
    std::uint32_t taken_off_at_core() const override { return 20; }
    bool labels() const override { return false; }
    std::int64_t resequencing() const override { return m_resequencing; }

  private:
    const std::int64_t m_resequencing;
};

// Random packet spraying (Dixit et al., INFOCOM 2013); PLTS-RND is the same.
class Spray : public InSwitches
{
  public:
    using InSwitches::InSwitches;

  protected:
    std::size_t Next(Flight&, std::uint32_t, std::size_t count) override
    {
        return Random(static_cast<std::uint32_t>(count));
    }
};

// Each switch goes round its next hops, for each flow by itself (PLTS paper, PLTS-RR).
class RoundRobin : public InSwitches
{
  public:
    using InSwitches::InSwitches;

    void Begin(Flow& flow) override
    {
        Choice::Begin(flow);
        flow.at_switches.assign(1 + m_tree.half, 0);
        for (auto& next : flow.at_switches)
        {
            next = Random(m_tree.half);
        }
    }

  protected:
    std::size_t Next(Flight& flight, std::uint32_t at, std::size_t count) override
    {
        return flight.flow->at_switches[at]++ % count;
    }
};

// Each switch takes the next hop that has carried fewest bytes of the flow (PLTS paper, PLTS-CNT).
class LeastUsed : public InSwitches
{
  public:
    using InSwitches::InSwitches;

    void Begin(Flow& flow) override { flow.at_switches.assign((1 + m_tree.half) * m_tree.half, 0); }

  protected:
    std::size_t Next(Flight& flight, std::uint32_t at, std::size_t count) override
    {
        const auto begin = flight.flow->at_switches.begin() + at * m_tree.half;
        std::uint32_t least = begin[0];
        std::uint32_t equal = 1;
        std::size_t found = 0;
        for (std::size_t hop = 1; hop < count; ++hop)
        {
            if (begin[hop] < least)
            {
                least = begin[hop];
                found = hop;
                equal = 1;
            }
            else if (begin[hop] == least && Random(++equal) == 0)
            {
                found = hop;
            }
        }
        begin[found] += flight.bytes;
        return found;
    }
};

template <typename T>
std::unique_ptr<Choice>
Make(const Settings& settings)
{
    return std::make_unique<T>(settings);
}

const std::map<std::string, std::function<std::unique_ptr<Choice>(const Settings&)>> SCHEMES{
    {"sopa", Make<Sopa>},
    {"drb", Make<Drb>},
    {"hedera", Make<Hedera>},
    {"rps", Make<Spray>},
    {"plts-rnd", Make<Spray>},
    {"plts-rr", Make<RoundRobin>},
    {"plts-cnt", Make<LeastUsed>},
    {"ecmp", Make<Hash>},
};

} // namespace

std::unique_ptr<Choice>
MakeChoice(const Settings& settings)
{
    const auto found = SCHEMES.find(settings.scheme);
    if (found == SCHEMES.end())
    {
        std::string names;
        for (const auto& [name, _] : SCHEMES)
        {
            names += (names.empty() ? "" : ", ") + name;
        }
        throw std::invalid_argument("there is no scheme " + settings.scheme + ": take one of " + names);
    }
    return found->second(settings);
}

} // namespace sopa
