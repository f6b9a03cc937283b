// Hedera (Al-Fares et al., NSDI 2010): hashing, and from time to time a path of its own for each large flow.
#pragma once

#include "path_selector.h"

namespace sopa
{

// A flow that the controller looks at.
struct Elephant
{
    Flow* flow;
    double demand = 0.0; // share of a host's link
    bool limited = false; // by its receiver
};

// Natural demands: what flows would get if only hosts' links were limits (section 4.2 of the paper).
void EstimateDemands(std::vector<Elephant>& elephants);

class Hedera : public Hash
{
  public:
    explicit Hedera(const Settings& settings);

    void Start(Fabric& fabric) override;
    void Begin(Flow& flow) override;
    void AtEdge(Flight& flight, Fabric& fabric) override;

  protected:
    std::size_t Next(Flight& flight, std::uint32_t at, std::size_t count) override;

  private:
    void Schedule();

    // The first path with room for an elephant, whose room is taken then (Global First Fit, section 5.1); the flow keeps the
    // one that it has while it fits.
    void Place(const Elephant& elephant, std::vector<double>& taken);

    const std::int64_t m_period;
    const double m_threshold; // bytes in a period
    std::vector<Flow*> m_flows;
};

} // namespace sopa
