// Hedera (Al-Fares et al., NSDI 2010): ECMP, and a periodic scheduler that places each large flow on a path of its own.
#pragma once

#include "path_selector.h"

#include <functional>

namespace sopa
{

// A large flow, as the scheduler sees it.
struct Elephant
{
    Flow* flow;
    double demand = 0.0;  // share of a host link of usual rate
    bool limited = false; // by the link of its receiver
};

// Estimate natural demands: the rates of the flows if only the host links were limited (section 4.2). `capacity` is what the link of a
// host carries, in the unit of demands.
void EstimateDemands(std::vector<Elephant>& elephants, const std::function<double(Host)>& capacity);

class Hedera : public Hash
{
  public:
    explicit Hedera(const Settings& settings);

    void Start(Fabric& fabric) override;
    void Begin(Flow& flow) override;
    void AtEdge(InFlightPacket& in_flight, Fabric& fabric) override;

  protected:
    std::size_t Next(InFlightPacket& in_flight, std::uint32_t at, std::size_t count) override;

  private:
    void Schedule();

    // Place a flow on the first path with enough free capacity, and reserve it in `taken` (Global First Fit, section 5.1). A placed
    // flow keeps its path as long as it fits.
    void Place(const Elephant& elephant, std::vector<double>& taken);

    // What a link carries according to the description of the fabric, as a share of a host link of usual rate.
    double Capacity(LinkId id) const
    {
        return m_fabric->link(id).rate() / (m_tree.LevelOf(id) == 2 ? m_rate * m_core_share : m_rate);
    }

    Fabric* m_fabric = nullptr;
    const double m_rate, m_core_share; // bit/s of a host link
    const std::int64_t m_period;
    const double m_threshold; // bytes in a period
    std::vector<Flow*> m_flows;
};

} // namespace sopa
