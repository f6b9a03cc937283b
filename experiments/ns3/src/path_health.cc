#include "path_health.h"

#include <algorithm>
#include <cmath>

namespace sopa
{

namespace
{

// As in path_health.py, evidence.py and loss_window.py
constexpr double MIN_LOSS = 0.01, HOLD = 2, MAX_HOLD = 64, SOON = 60, SILENT = 60, ANSWER = 1, MAX_LUCK = 0.02, USUAL = 2;
constexpr double JUDGE = 0.1, JUDGE_OF_PATH = 0.002;
constexpr std::size_t MANY_RACKS = 3;
constexpr std::uint32_t ENOUGH = 20, MAX_ENOUGH = 1000, MIN_LOSSES = 5;
constexpr std::int64_t WINDOW = 30;
constexpr double MIN_SHARE = 0.005, MIN_RATIO = 2, CHANCE = 1e-6;

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

// Return the probability that all of `row` probes are among the lost ones, if each is as likely to be as the others (Fisher's test).
double
Luck(std::uint32_t row, double passed, double missed)
{
    double product = 1;
    for (std::uint32_t n = 0; n < row; ++n)
    {
        product *= (missed + row - n) / (missed + row + passed - n);
    }
    return product;
}

} // namespace

bool
Section::Covers(const Way& way, std::uint32_t edges) const
{
    return up1 == way.up.first && (up2 < 0 || up2 == way.up.second) && (pod < 0 || pod == static_cast<int>(way.rack / edges)) &&
           (edge < 0 || edge == static_cast<int>(way.rack % edges));
}

bool
Section::Includes(const Section& other) const
{
    const auto one = [](int mine, int its) { return mine < 0 || mine == its; };
    return up1 == other.up1 && one(up2, other.up2) && one(pod, other.pod) && one(edge, other.edge);
}

// -- the window -------------------------------------------------------------------------------------------------------

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
            const int pod = way.rack / m_edges, edge = way.rack % m_edges, up1 = way.up.first, up2 = way.up.second;
            std::vector<Section> crossed{Section{up1}, Section{up1, -1, pod, edge}};
            if (up2 != 0xff)
            {
                crossed.insert(crossed.end(), {Section{up1, up2}, Section{up1, up2, pod}, Section{up1, up2, pod, edge}});
            }
            for (const Section& section : crossed)
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

// -- the rules --------------------------------------------------------------------------------------------------------

void
PathHealth::Usual::Note(bool lost, double now)
{
    const double fade = std::exp((m_at - now) / USUAL);
    m_at = now;
    m_passed = m_passed * fade + !lost;
    m_lost = m_lost * fade + lost;
}

double
PathHealth::Usual::Share(double without) const
{
    const double lost = std::max(0.0, m_lost - without);
    return lost > 0 ? std::max(MIN_LOSS, lost / (lost + m_passed)) : MIN_LOSS;
}

std::uint32_t
PathHealth::Left::Enough() const
{
    return dead() ? ENOUGH : std::clamp<std::uint32_t>(std::ceil(3 / share), ENOUGH, MAX_ENOUGH);
}

std::vector<Section>
PathHealth::SectionsOf(const Way& way) const
{
    const int pod = way.rack / m_edges, edge = way.rack % m_edges, up1 = way.up.first, up2 = way.up.second;
    if (way.up.second == 0xff)
    {
        return {Section{up1}, Section{up1, -1, pod, edge}};
    }
    return {Section{up1}, Section{up1, up2}, Section{up1, up2, pod}, Section{up1, -1, pod, edge}, Section{up1, up2, pod, edge}};
}

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
    for (const Section& section : SectionsOf(way))
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
    const auto sections = SectionsOf(way);
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
