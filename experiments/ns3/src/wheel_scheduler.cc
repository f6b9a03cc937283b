#include "wheel_scheduler.h"

#include "fabric.h"

#include "ns3/event-impl.h"

#include <algorithm>
#include <typeinfo>

namespace sopa
{

NS_OBJECT_ENSURE_REGISTERED(WheelScheduler);

ns3::TypeId
WheelScheduler::GetTypeId()
{
    static ns3::TypeId tid =
        ns3::TypeId("sopa::WheelScheduler").SetParent<ns3::Scheduler>().AddConstructor<WheelScheduler>();
    return tid;
}

WheelScheduler::WheelScheduler()
    : m_slots(MASK + 1)
{
}

void
WheelScheduler::Insert(const Event& event)
{
    const std::uint64_t slot = event.key.m_ts >> SLOT_BITS;
    if (slot <= m_slot)
    {
        // Few events are inserted into the current slot, and near its end.
        m_now.insert(std::upper_bound(m_now.begin(), m_now.end(), event, std::greater<Event>()), event);
    }
    else if (slot - m_slot <= MASK)
    {
        m_slots[slot & MASK].push_back(event);
        ++m_in_wheel;
    }
    else
    {
        m_later.push_back(event);
        std::push_heap(m_later.begin(), m_later.end(), std::greater<Event>());
        if (m_later.size() > m_compact_at)
        {
            ForgetCancelled();
        }
    }
}

void
WheelScheduler::ForgetCancelled()
{
    const auto kept = std::partition(m_later.begin(), m_later.end(), [](const Event& event) {
        return !event.impl->IsCancelled();
    });
    for (auto event = kept; event != m_later.end(); ++event)
    {
        event->impl->Unref(); // as the simulator does after an event
    }
    m_later.erase(kept, m_later.end());
    std::make_heap(m_later.begin(), m_later.end(), std::greater<Event>());
    m_compact_at = std::max<std::size_t>(1 << 16, 2 * m_later.size());
}

void
WheelScheduler::Advance() const
{
    while (m_now.empty())
    {
        if (m_in_wheel == 0)
        {
            if (m_later.empty())
            {
                return;
            }
            m_slot = m_later.front().key.m_ts >> SLOT_BITS;
        }
        else
        {
            ++m_slot;
        }
        std::vector<Event>& slot = m_slots[m_slot & MASK];
        m_in_wheel -= slot.size();
        m_now.swap(slot);
        while (!m_later.empty() && m_later.front().key.m_ts >> SLOT_BITS <= m_slot)
        {
            m_now.push_back(m_later.front());
            std::pop_heap(m_later.begin(), m_later.end(), std::greater<Event>());
            m_later.pop_back();
        }
        std::sort(m_now.begin(), m_now.end(), std::greater<Event>());
        // The events of this slot have been prefetched: prefetch what they will access, and the events of the next slot.
        for (const Event& event : m_now)
        {
            if (typeid(*event.impl) == typeid(InFlightPacket))
            {
                static_cast<const InFlightPacket*>(event.impl)->Prefetch();
            }
        }
        for (const Event& event : m_slots[(m_slot + 1) & MASK])
        {
            __builtin_prefetch(event.impl);
        }
    }
}

bool
WheelScheduler::IsEmpty() const
{
    return m_now.empty() && m_in_wheel == 0 && m_later.empty();
}

ns3::Scheduler::Event
WheelScheduler::PeekNext() const
{
    Advance();
    return m_now.back();
}

ns3::Scheduler::Event
WheelScheduler::RemoveNext()
{
    Advance();
    Event next = m_now.back();
    m_now.pop_back();
    return next;
}

void
WheelScheduler::Remove(const Event& event)
{
    const std::uint64_t slot = event.key.m_ts >> SLOT_BITS;
    const bool present = slot <= m_slot, near = slot - m_slot <= MASK;
    std::vector<Event>& among = present ? m_now : near ? m_slots[slot & MASK] : m_later;
    const auto found = std::find(among.begin(), among.end(), event);
    if (found == among.end())
    {
        // It was beyond the wheel when it was inserted.
        m_later.erase(std::find(m_later.begin(), m_later.end(), event));
        std::make_heap(m_later.begin(), m_later.end(), std::greater<Event>());
        return;
    }
    among.erase(found);
    m_in_wheel -= !present && near;
    if (!present && !near)
    {
        std::make_heap(m_later.begin(), m_later.end(), std::greater<Event>());
    }
}

} // namespace sopa
