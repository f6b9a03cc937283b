#include "evidence.h"

#include <algorithm>
#include <cmath>

namespace sopa
{

namespace
{

// As in evidence.py
constexpr double MIN_LOSS = 0.01, USUAL = 2;
constexpr std::uint32_t ENOUGH = 20, MAX_ENOUGH = 1000;

} // namespace

void
Usual::Note(bool lost, double now)
{
    const double fade = std::exp((m_at - now) / USUAL);
    m_at = now;
    m_passed = m_passed * fade + !lost;
    m_lost = m_lost * fade + lost;
}

double
Usual::Share(double without) const
{
    const double lost = std::max(0.0, m_lost - without);
    return lost > 0 ? std::max(MIN_LOSS, lost / (lost + m_passed)) : MIN_LOSS;
}

std::uint32_t
Left::Enough() const
{
    return dead() ? ENOUGH : std::clamp<std::uint32_t>(std::ceil(3 / share), ENOUGH, MAX_ENOUGH);
}

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

} // namespace sopa
