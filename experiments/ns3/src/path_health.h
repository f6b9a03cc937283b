// Which paths a host leaves by itself: the rules of path_health.py, evidence.py and loss_window.py in
// sopa_ryu/agent/probing, which explain them.
#pragma once

#include "clos.h"

#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace sopa
{

using Label = std::pair<std::uint8_t, std::uint8_t>; // up1 and up2; 0xff where not taken

// A candidate path to a rack.
struct Way
{
    std::uint32_t rack = 0;
    Label up;
    bool operator<(const Way& other) const { return std::tie(rack, up) < std::tie(other.rack, other.up); }
};

// The paths that share a link on the way out of one host; -1 stands for any.
struct Section
{
    int up1 = 0, up2 = -1, pod = -1, edge = -1;
    bool Covers(const Way& way, std::uint32_t edges) const;
    bool Includes(const Section& other) const;
    bool operator<(const Section& other) const
    {
        return std::tie(up1, up2, pod, edge) < std::tie(other.up1, other.up2, other.pod, other.edge);
    }
    bool operator==(const Section& other) const
    {
        return std::tie(up1, up2, pod, edge) == std::tie(other.up1, other.up2, other.pod, other.edge);
    }
};

struct Excess
{
    Section section;
    double share, others, chance;
};

// Losses by path over the last seconds.
class LossWindow
{
  public:
    explicit LossWindow(std::uint32_t edges)
        : m_edges(edges)
    {
    }

    void Probed(const Way& way, bool lost, double now);
    void SentAgain(const Way& way, double now);
    void Carried(const std::map<Label, std::uint32_t>& packets, double now);
    void Forget(const Section& section);
    void Advance(double now);

    // Return the section that certainly loses more than the other paths of its racks, if there is any.
    std::optional<Excess> Worst(const std::vector<Section>& avoided);

    bool fresh() const { return m_fresh; } // there have been losses since `Worst` was asked for
    std::size_t size() const { return m_whole.ways.size(); }

  private:
    struct Counts
    {
        std::uint32_t sent = 0, lost = 0, again = 0;
    };
    struct Second
    {
        std::int64_t number = 0;
        std::map<Way, Counts> ways;
        std::map<Label, std::uint32_t> carried;
    };
    Second& At(double now);
    std::optional<Excess> ExcessOf(const Section& section, const std::set<Way>& known) const;

    const std::uint32_t m_edges;
    std::deque<Second> m_seconds;
    Second m_whole;
    bool m_fresh = false;
};

class PathHealth
{
  public:
    explicit PathHealth(std::uint32_t edges)
        : m_edges(edges),
          m_window(edges)
    {
    }

    struct Change
    {
        Section section;
        bool left;
        std::string cause; // row, share; of one put back good or unknown
    };

    void Decided(const Way& way, Host destination, bool through, bool came_back, double now);
    void Retransmitted(const Way& way, double now) { m_window.SentAgain(way, now); }
    void Carried(const std::map<Label, std::uint32_t>& packets, double now) { m_window.Carried(packets, now); }
    void Tick(double now);

    // Return the candidate paths to a rack that are avoided, of those that there are: never all, and by share alone at most half.
    std::set<Label> Gone(std::uint32_t rack, const std::vector<Label>& choices) const;

    bool avoids() const { return !m_left.empty(); }
    std::uint32_t version() const { return m_version; } // another one after each change

    // Return whether a path crosses what is avoided, and so has to be probed until it is good again.
    bool Covers(const Way& way) const;

    std::vector<Change> changes; // since the caller has emptied it

  private:
    struct Run
    {
        double since;
        std::uint64_t passed, missed; // by then
        std::uint64_t counted = 0;
        std::set<Way> ways;
        std::map<Host, std::uint32_t> lost; // by the host that they went to
    };
    struct Left
    {
        double share, at, hold, heard;
        std::uint32_t through = 0;
        double since = -1;
        bool dead() const { return share >= 1; }
        std::uint32_t Enough() const;
    };

    // The usual share of losses, with a short memory.
    class Usual
    {
      public:
        void Note(bool lost, double now);
        double Share(double without) const;

      private:
        double m_at = 0, m_passed = 0, m_lost = 0;
    };

    std::vector<Section> SectionsOf(const Way& way) const; // the widest first; the last is that path alone
    void ComeThrough(const Way& way, double now);
    void Lose(const Way& way, Host destination, double now);
    bool Explained(const Section& section) const;
    bool IsDead(const Section& section, bool alone) const;
    void Leave(const Section& section, double share, const std::string& cause, double now);
    void PutBack(const Section& section, const std::string& cause, double now);

    const std::uint32_t m_edges;
    LossWindow m_window;
    std::map<Section, Run> m_runs;
    std::map<Section, Left> m_left;
    std::map<Section, std::pair<double, double>> m_before; // how long it was held, and until when
    std::map<Host, double> m_answered;
    std::uint64_t m_passed = 0, m_missed = 0;
    Usual m_usual;
    double m_judged = -INFINITY;
    std::uint32_t m_version = 0;
};

} // namespace sopa
