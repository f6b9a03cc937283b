#include "loss_window.h"

#include <algorithm>
#include <cmath>

namespace sopa
{

namespace
{

// As in loss_window.py
constexpr std::uint32_t MIN_LOSSES = 5;
constexpr std::int64_t WINDOW = 30;
constexpr double MIN_SHARE = 0.005, MIN_RATIO = 2;

// Return a bound of the probability that at least so many of `count` losses fall where so many are expected (Hoeffding 1963).
double
ByChance(double hits, double count, double expected)
{
    if (count <= 0 || hits <= expected)
    {
        return 1;
    }
    const double mean = expected / count, share = hits / count;
    double distance = mean > 0 ? share * std::log(share / mean) : INFINITY;
    if (share < 1)
    {
        distance += (1 - share) * std::log((1 - share) / (1 - mean));
    }
    return std::exp(-count * distance);
}

} // namespace

void
LossWindow::Advance(double now)
{
    while (!m_seconds.empty() && m_seconds.front().number <= static_cast<std::int64_t>(now) - WINDOW)
    {
        for (const auto& [way, old] : m_seconds.front().ways)
        {
            const auto found = m_whole.ways.find(way);
            if (found == m_whole.ways.end())
            {
                continue; // forgotten
            }
            Counts& its = found->second;
            its.sent -= old.sent;
            its.lost -= old.lost;
            its.again -= old.again;
            if (!its.sent && !its.again)
            {
                m_whole.ways.erase(found);
            }
        }
        for (const auto& [label, count] : m_seconds.front().carried)
        {
            m_whole.carried[label] -= count;
        }
        m_seconds.pop_front();
    }
}

LossWindow::Second&
LossWindow::At(double now)
{
    const auto number = static_cast<std::int64_t>(now);
    if (m_seconds.empty() || m_seconds.back().number < number)
    {
        Advance(now);
        m_seconds.emplace_back().number = number;
    }
    return m_seconds.back();
}

void
LossWindow::Probed(const Way& way, bool lost, double now)
{
    for (Second* second : {&At(now), &m_whole})
    {
        Counts& its = second->ways[way];
        ++its.sent;
        its.lost += lost;
    }
    m_fresh |= lost;
}

void
LossWindow::SentAgain(const Way& way, double now)
{
    for (Second* second : {&At(now), &m_whole})
    {
        ++second->ways[way].again;
    }
    m_fresh = true;
}

void
LossWindow::Carried(const std::map<Label, std::uint32_t>& packets, double now)
{
    for (Second* second : {&At(now), &m_whole})
    {
        for (const auto& [label, count] : packets)
        {
            second->carried[label] += count;
        }
    }
}

void
LossWindow::Forget(const Section& section)
{
    const auto without = [&](Second& second) {
        for (auto one = second.ways.begin(); one != second.ways.end();)
        {
            one = section.Covers(one->first, m_edges) ? second.ways.erase(one) : std::next(one);
        }
    };
    std::for_each(m_seconds.begin(), m_seconds.end(), without);
    without(m_whole);
}

std::optional<Excess>
LossWindow::Worst(const std::vector<Section>& avoided)
{
    m_fresh = false;
    const auto free = [&](const Way& way) {
        return std::none_of(avoided.begin(), avoided.end(), [&](const Section& one) { return one.Covers(way, m_edges); });
    };
    std::set<Way> known;
    std::map<Section, Counts> suspects;
    for (const auto& [way, its] : m_whole.ways)
    {
        if (!free(way))
        {
            continue;
        }
        known.insert(way);
        if (its.again)
        {
            for (const auto& [label, count] : m_whole.carried) // a loss might have been on any of them
            {
                const Way beside{way.rack, label};
                if (count && (label.second == 0xff) == (way.up.second == 0xff) && free(beside))
                {
                    known.insert(beside);
                }
            }
        }
        if (its.lost || its.again)
        {
            for (const Section& section : SectionsOf(way, m_edges))
            {
                suspects[section].lost += its.lost;
                suspects[section].again += its.again;
            }
        }
    }
    std::optional<Excess> worst;
    for (const auto& [section, losses] : suspects)
    {
        if (losses.lost < MIN_LOSSES && losses.again < MIN_LOSSES)
        {
            continue;
        }
        const auto found = ExcessOf(section, known);
        if (found && (!worst || found->chance < worst->chance))
        {
            worst = found;
        }
    }
    return worst;
}

std::optional<Excess>
LossWindow::ExcessOf(const Section& section, const std::set<Way>& known) const
{
    std::vector<Way> inside, outside;
    std::set<std::uint32_t> racks;
    for (const Way& way : known)
    {
        if (section.Covers(way, m_edges))
        {
            inside.push_back(way);
            racks.insert(way.rack);
        }
    }
    for (const Way& way : known)
    {
        if (racks.count(way.rack) && !section.Covers(way, m_edges))
        {
            outside.push_back(way);
        }
    }
    if (outside.empty())
    {
        return {};
    }
    std::optional<Excess> best;
    const auto judge = [&](double lost, double others_lost, double expected, double share, double others) {
        if (share < MIN_SHARE || share < MIN_RATIO * others)
        {
            return;
        }
        const double chance = ByChance(lost, lost + others_lost, expected);
        if (chance <= CHANCE / 2 && (!best || chance < best->chance))
        {
            best = Excess{section, share, others, chance};
        }
    };
    struct Sums
    {
        double sent = 0, lost = 0, again = 0, carried = 0;
    };
    const auto counts_of = [&](const Way& way) {
        const auto found = m_whole.ways.find(way);
        return found == m_whole.ways.end() ? Counts{} : found->second;
    };
    const auto carried_by = [&](const Label& label) {
        const auto found = m_whole.carried.find(label);
        return found == m_whole.carried.end() ? 0.0 : static_cast<double>(found->second);
    };
    std::map<std::uint32_t, std::pair<Sums, Sums>> by_rack;
    const auto sum = [&](const std::vector<Way>& ways, bool is_inside) {
        Sums all;
        std::set<Label> labels;
        for (const Way& way : ways)
        {
            const Counts its = counts_of(way);
            auto& pair = by_rack[way.rack];
            Sums& here = is_inside ? pair.first : pair.second;
            here.again += its.again;
            here.carried += carried_by(way.up);
            all.sent += its.sent;
            all.lost += its.lost;
            all.again += its.again;
            all.carried += labels.insert(way.up).second ? carried_by(way.up) : 0;
        }
        return all;
    };
    const Sums in = sum(inside, true), out = sum(outside, false);
    if (in.lost >= MIN_LOSSES && out.sent > 0)
    {
        judge(in.lost, out.lost, (in.lost + out.lost) * in.sent / (in.sent + out.sent), in.lost / in.sent, out.lost / out.sent);
    }
    if (in.again >= MIN_LOSSES && in.carried > 0 && out.carried > 0)
    {
        double expected = 0;
        for (const auto& [rack, pair] : by_rack)
        {
            const auto& [here, there] = pair;
            const double all = here.carried + there.carried, again = here.again + there.again;
            expected += all > 0 ? again * here.carried / all : again;
        }
        judge(in.again, out.again, expected, in.again / in.carried, out.again / out.carried);
    }
    return best;
}

} // namespace sopa
