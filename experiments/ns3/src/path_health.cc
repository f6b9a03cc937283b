#include "path_health.h"

#include <algorithm>
#include <cmath>

namespace sopa
{

namespace
{

// As in path_health.py
constexpr double HOLD = 2, MAX_HOLD = 64, SOON = 60, SILENT = 60, ANSWER = 1;
constexpr double JUDGE = 0.1, JUDGE_OF_PATH = 0.002;
constexpr std::size_t MANY_RACKS = 3;

} // namespace

bool
PathHealth::Covers(const Way& way) const
{
    return std::any_of(m_left.begin(), m_left.end(), [&](const auto& one) { return one.first.Covers(way, m_edges); });
}

void
PathHealth::Decided(const Way& way, Host destination, bool through, bool came_back, double now)
{
    if (came_back)
    {
        m_answered[destination] = now;
    }
    m_window.Probed(way, !through, now);
    through ? ComeThrough(way, now) : Lose(way, destination, now);
}

void
PathHealth::ComeThrough(const Way& way, double now)
{
    ++m_passed;
    m_usual.Note(false, now);
    for (const Section& section : SectionsOf(way, m_edges))
    {
        m_runs.erase(section);
    }
    for (auto& [section, its] : m_left)
    {
        if (section.Covers(way, m_edges))
        {
            its.heard = now;
            its.since = its.through ? its.since : now;
            ++its.through;
        }
    }
}

void
PathHealth::Lose(const Way& way, Host destination, double now)
{
    std::vector<Section> covering;
    for (const auto& [section, its] : m_left)
    {
        if (section.Covers(way, m_edges))
        {
            covering.push_back(section);
        }
    }
    for (const Section& section : covering)
    {
        Left& its = m_left.at(section);
        its.heard = now;
        // a narrower one that is avoided explains the loss
        if (std::none_of(covering.begin(), covering.end(),
                         [&](const Section& other) { return !(other == section) && section.Includes(other); }))
        {
            its.through = 0;
        }
    }
    const auto answered = m_answered.find(destination);
    // the loss of one that does not answer at all says nothing about the others
    const bool counts = covering.empty() && answered != m_answered.end() && now - answered->second < ANSWER;
    const auto sections = SectionsOf(way, m_edges);
    const auto explains = [&](const Section& other, const Section& section) {
        return m_left.at(other).dead() && !other.Includes(section);
    };
    for (const Section& section : sections)
    {
        if (std::any_of(covering.begin(), covering.end(), [&](const Section& other) { return explains(other, section); }))
        {
            continue; // what is avoided explains the loss already
        }
        Run& run = m_runs.try_emplace(section, Run{now, m_passed, m_missed, 0, {}, {}}).first->second;
        run.counted += counts;
        run.ways.insert(way);
        ++run.lost[destination];
    }
    if (counts)
    {
        ++m_missed;
        m_usual.Note(true, now);
    }
    for (const Section& section : sections) // the widest first: what it includes is left with it
    {
        if (!Explained(section) && IsDead(section, section == sections.back()))
        {
            Leave(section, 1, "row", now);
        }
    }
}

bool
PathHealth::Explained(const Section& section) const
{
    return std::any_of(m_left.begin(), m_left.end(), [&](const auto& one) {
        const auto& [other, its] = one;
        return its.dead() && (section == other || (other.Includes(section) && !its.through));
    });
}

bool
PathHealth::IsDead(const Section& section, bool alone) const
{
    const auto found = m_runs.find(section);
    if (found == m_runs.end())
    {
        return false;
    }
    const Run& run = found->second;
    if (!alone && run.ways.size() < 2)
    {
        return false;
    }
    std::set<std::uint32_t> racks;
    for (const Way& way : run.ways)
    {
        racks.insert(way.rack);
    }
    // not the far host: that has answered on another path meanwhile, or it is many of them
    std::uint32_t row = 0;
    for (const auto& [host, lost] : run.lost)
    {
        const auto answered = m_answered.find(host);
        row += racks.size() >= MANY_RACKS || (answered != m_answered.end() && answered->second >= run.since) ? lost : 0;
    }
    const double passed = m_passed - run.passed, others = static_cast<double>(m_missed - run.missed) - run.counted;
    const double missed = std::max(0.0, others), usual_now = passed > 0 ? missed / (missed + passed) : 1;
    const double usual = std::max(m_usual.Share(run.counted), usual_now);
    return usual < 1 && row >= std::log(CHANCE) / std::log(usual) - 1e-9 && Luck(row, passed, missed) <= MAX_LUCK;
}

void
PathHealth::Leave(const Section& section, double share, const std::string& cause, double now)
{
    for (auto one = m_left.begin(); one != m_left.end();)
    {
        one = section.Includes(one->first) ? m_left.erase(one) : std::next(one);
    }
    const auto before = m_before.find(section);
    const double last = before == m_before.end() ? 0 : before->second.first;
    const bool soon = last > 0 && now - before->second.second < std::max(SOON, 4 * last);
    const double hold = soon ? std::min(2 * last, MAX_HOLD) : HOLD;
    m_before.erase(section);
    m_left[section] = Left{share, now, hold, now, 0, -1};
    m_window.Forget(section);
    changes.push_back({section, true, cause});
    ++m_version;
}

void
PathHealth::PutBack(const Section& section, const std::string& cause, double now)
{
    m_before[section] = {m_left.at(section).hold, now};
    m_left.erase(section);
    m_window.Forget(section);
    changes.push_back({section, false, cause});
    ++m_version;
}

void
PathHealth::Tick(double now)
{
    m_window.Advance(now);
    std::vector<Section> avoided;
    for (const auto& [section, its] : m_left)
    {
        avoided.push_back(section);
    }
    if (m_window.fresh() && now >= m_judged + std::max(JUDGE, m_window.size() * JUDGE_OF_PATH))
    {
        m_judged = now;
        if (const auto worst = m_window.Worst(avoided))
        {
            Leave(worst->section, std::min(worst->share, 0.99), "share", now);
        }
    }
    for (const Section& section : avoided)
    {
        const auto found = m_left.find(section);
        if (found == m_left.end() || now - found->second.at < found->second.hold)
        {
            continue;
        }
        const Left& its = found->second;
        if (its.since >= 0 && its.through >= its.Enough() && now - its.since >= its.hold)
        {
            PutBack(section, "good", now);
        }
        else if (now - its.heard >= SILENT)
        {
            PutBack(section, "unknown", now);
        }
    }
    for (auto one = m_runs.begin(); one != m_runs.end();)
    {
        one = now - one->second.since > SILENT ? m_runs.erase(one) : std::next(one);
    }
}

std::set<Label>
PathHealth::Gone(std::uint32_t rack, const std::vector<Label>& choices) const
{
    std::set<Label> gone;
    std::vector<std::pair<double, Label>> lossy;
    for (const Label& up : choices)
    {
        const Way way{rack, up};
        double share = 0;
        for (const auto& [section, its] : m_left)
        {
            share = section.Covers(way, m_edges) ? std::max(share, its.share) : share;
        }
        if (share >= 1)
        {
            gone.insert(up);
        }
        else if (share > 0)
        {
            lossy.emplace_back(-share, up);
        }
    }
    if (gone.size() == choices.size())
    {
        return {};
    }
    std::sort(lossy.begin(), lossy.end());
    for (const auto& [share, up] : lossy)
    {
        if (gone.size() >= choices.size() / 2)
        {
            break;
        }
        gone.insert(up);
    }
    return gone;
}

} // namespace sopa
