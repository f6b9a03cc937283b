// An event list for dense simulations: the events of the next millisecond are kept in slots of 16 ns.
#pragma once

#include "ns3/scheduler.h"

#include <vector>

namespace sopa
{

// A calendar queue (Brown, CACM 31(10), 1988) of fixed width: insertion takes constant time, and a slot is sorted when its time has
// come. Events beyond the wheel wait in a heap, from which cancelled events are removed periodically: TCP restarts its retransmission
// timer with every acknowledgement, and ns-3 keeps each cancelled event until its time. Events are returned by time and number, as by
// every scheduler of ns-3.
class WheelScheduler : public ns3::Scheduler
{
  public:
    static ns3::TypeId GetTypeId();
    WheelScheduler();

    void Insert(const Event& event) override;
    bool IsEmpty() const override;
    Event PeekNext() const override;
    Event RemoveNext() override;
    void Remove(const Event& event) override;

  private:
    static constexpr unsigned SLOT_BITS = 4;   // 16 ns
    static constexpr unsigned WHEEL_BITS = 16; // 1 ms in all
    static constexpr std::uint64_t MASK = (1u << WHEEL_BITS) - 1;

    void Advance() const;
    void ForgetCancelled();

    mutable std::vector<std::vector<Event>> m_slots;
    mutable std::vector<Event> m_now;   // the current slot, in descending order
    mutable std::vector<Event> m_later; // beyond the wheel: a heap
    std::size_t m_compact_at = 1 << 16; // size of m_later at which cancelled events are removed
    mutable std::uint64_t m_slot = 0;   // number of the current slot since time 0
    mutable std::size_t m_in_wheel = 0; // events in m_slots
};

} // namespace sopa
