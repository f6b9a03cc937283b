// Who chooses a packet's path, and how: one class for each scheme.
#pragma once

#include "fabric.h"

#include <map>
#include <memory>
#include <random>
#include <utility>

namespace sopa
{

// What is left of the paths between two racks.
struct Ways
{
    std::vector<std::pair<std::uint8_t, std::uint8_t>> all; // in round-robin order: the aggregation switch changes fastest
    std::vector<std::uint8_t> first;                        // distinct up1
    std::vector<std::vector<std::uint8_t>> second;          // for each up1, its up2
};

class Choice
{
  public:
    explicit Choice(const Settings& settings);
    virtual ~Choice() = default;

    // Bytes that the scheme adds to every packet's IP header.
    virtual std::uint32_t overhead() const { return 0; }

    // Whether the sending host writes the path into the packet.
    virtual bool labels() const { return false; }

    // Bytes that a core switch takes off again, of each packet that comes by.
    virtual std::uint32_t taken_off_at_core() const { return 0; }

    // How long the receiving host keeps a packet back for one that is missing before it, in ns; 0: not at all.
    virtual std::int64_t resequencing() const { return 0; }

    // Everything is there, and nothing has been sent yet.
    virtual void Start(Fabric&) {}

    // Where a new flow begins.
    virtual void Begin(Flow& flow);

    virtual void AtHost(Flow&, std::uint8_t&, std::uint8_t&) {}
    virtual void AtEdge(Flight&, Fabric&) {}
    virtual void AtAggregation(Flight&, Fabric&) {}

    // The fabric has changed: everybody who chooses knows it now.
    void Learn(Fabric& fabric);

  protected:
    const Ways& WaysOf(const Flow& flow);
    std::uint32_t Random(std::uint32_t below) { return static_cast<std::uint32_t>(m_random() % below); }

    const Tree m_tree;

  private:
    void Complete(Ways& ways) const;

    std::mt19937_64 m_random;
    std::string m_first_path;
    Ways m_within_rack, m_within_pod, m_between_pods;
    Fabric* m_fabric = nullptr; // once something has failed
    std::map<std::pair<std::uint32_t, std::uint32_t>, Ways> m_left;
};

// A switch chooses among its next hops.
class InSwitches : public Choice
{
  public:
    using Choice::Choice;
    void AtEdge(Flight& flight, Fabric& fabric) override;
    void AtAggregation(Flight& flight, Fabric& fabric) override;

  protected:
    // Which of so many next hops; `at` is 0 at the edge switch, and 1 + up1 at an aggregation switch.
    virtual std::size_t Next(Flight& flight, std::uint32_t at, std::size_t count) = 0;
};

// One path for a flow, by another hash in each switch, or by the same in all.
class Hash : public InSwitches
{
  public:
    explicit Hash(const Settings& settings);

  protected:
    std::size_t Next(Flight& flight, std::uint32_t at, std::size_t count) override;

  private:
    bool m_same;
};

// Throws std::invalid_argument for a scheme that is not there.
std::unique_ptr<Choice> MakeChoice(const Settings& settings);

} // namespace sopa
