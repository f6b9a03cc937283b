// Which paths a host leaves by itself: the rules of path_health.py in sopa_ryu/agent/probing, which explains them.
#pragma once

#include "avoided.h"
#include "clos.h"
#include "evidence.h"
#include "loss_window.h"

#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace sopa
{

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
