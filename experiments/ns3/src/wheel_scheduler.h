// An event list for simulations with many events a nanosecond: those of the next milliseconds lie in slots of some nanoseconds.
#pragma once

#include "ns3/scheduler.h"

#include <vector>

namespace sopa
{

// A calendar queue (Brown, CACM 31(10), 1988) of fixed width: inserting is constant, and a slot is sorted when its time has come.
// What lies beyond the wheel waits in a heap, from which cancelled events are thrown out now and then: TCP starts its
// retransmission timer anew with every acknowledgement, and ns-3 keeps each cancelled one until its time. Events come out by time and number, as every scheduler of ns-3 gives them.
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
    mutable std::vector<Event> m_now; // the present slot, the next event at its end
    mutable std::vector<Event> m_later; // a heap
    std::size_t m_most_later = 1 << 16; // when to look for cancelled ones there
    mutable std::uint64_t m_slot = 0;   // the present slot's number since the beginning of time
    mutable std::size_t m_in_wheel = 0; // events in m_slots
};

} // namespace sopa
