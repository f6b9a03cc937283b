// What path health knows of a section, and how probable it is by chance: as in sopa_ryu/agent/probing/evidence.py.
#pragma once

#include "avoided.h"
#include "clos.h"

#include <cstdint>
#include <map>
#include <set>

namespace sopa
{

constexpr double MAX_LUCK = 0.02; // a row of losses that is more probable than this may be luck

// Probes in a row that were lost in a section.
struct Run
{
    double since;
    std::uint64_t passed, missed; // by then
    std::uint64_t counted = 0;
    std::set<Way> ways;
    std::map<Host, std::uint32_t> lost; // by the host that they went to
};

// A section that is avoided.
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

// Return the probability that all of `row` probes are among the lost ones, if each is as likely to be as the others (Fisher's test).
double Luck(std::uint32_t row, double passed, double missed);

} // namespace sopa
