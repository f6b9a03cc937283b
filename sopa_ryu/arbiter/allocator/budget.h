/* What parts of a fabric (hosts, racks, pods) may still send or receive in each slot of a batch. */
#ifndef SOPA_ALLOCATOR_BUDGET_H
#define SOPA_ALLOCATOR_BUDGET_H

#include "bits.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sopa::allocator {

template <typename Slots> class Budget {
public:
	/* Capacities in cells a slot; those above `most` are never used up and not counted. */
	void follow(const std::vector<uint32_t> &capacities, unsigned batch, uint32_t most = UINT32_MAX)
	{
		m_batch = batch;
		m_capacity = capacities;
		m_most = most;
		m_full.assign(capacities.size(), 0);
		m_counted = false;
		for (size_t part = 0; part < capacities.size(); part++) {
			if (capacities[part])
				m_full[part] = static_cast<Slots>(below(batch));
			m_counted |= capacities[part] > 1 && capacities[part] < most;
		}
		m_used.assign(m_counted ? capacities.size() * batch : 0, 0);
	}

	/* Begin a batch. */
	void renew()
	{
		free = m_full;
		std::fill(m_used.begin(), m_used.end(), 0);
	}

	/* Whether capacities above 1 have to be counted. */
	bool counted() const { return m_counted; }

	/* Use a cell in each of these slots, which are free. */
	void take(size_t part, Slots slots)
	{
		if (m_capacity[part] == 1) {
			free[part] ^= slots;
			return;
		}
		if (m_capacity[part] >= m_most)
			return;
		for (uint64_t rest = slots; rest; rest &= rest - 1) {
			const unsigned slot = lowest(rest);
			if (++m_used[part * m_batch + slot] == m_capacity[part])
				free[part] ^= static_cast<Slots>(Slots{1} << slot);
		}
	}

	/* Use some cells, evenly over the slots from one on. */
	void reserve(size_t part, uint32_t cells, unsigned first)
	{
		const uint64_t wanted = std::min<uint64_t>(cells, uint64_t{m_capacity[part]} * m_batch);
		for (uint64_t cell = 0; cell < wanted; cell++) {
			const unsigned slot = static_cast<unsigned>((first + cell * m_batch / wanted) % m_batch);
			if (free[part] >> slot & 1)
				take(part, static_cast<Slots>(Slots{1} << slot));
		}
	}

	std::vector<Slots> free;

private:
	unsigned m_batch = 0;
	uint32_t m_most = UINT32_MAX;
	bool m_counted = false;
	std::vector<uint32_t> m_capacity, m_used;
	std::vector<Slots> m_full;
};

} // namespace sopa::allocator

#endif
