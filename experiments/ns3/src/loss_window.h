// Losses by path over the last seconds, and whether a section loses more than chance explains: the rules of
// sopa_ryu/agent/probing/loss_window.py, which explains them.
#pragma once

#include "avoided.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace sopa
{

constexpr double CHANCE = 1e-6; // what is less probable than this is no chance

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

} // namespace sopa
