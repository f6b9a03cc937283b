/* The cells between pods that the uplinks of aggregation switches can carry, as limits for the colours of cells between racks. */
#ifndef SOPA_ALLOCATOR_POD_QUOTA_H
#define SOPA_ALLOCATOR_POD_QUOTA_H

#include "colouring.h"
#include "layout.h"

#include <numeric>
#include <vector>

namespace sopa::allocator {

template <unsigned Words> class PodQuota final : public Quota<Words> {
public:
	PodQuota(const Layout &layout, const Fabric &fabric, const std::vector<uint8_t> &up1_of) : m_layout(layout), m_up1_of(up1_of)
	{
		m_colours_of.resize(layout.aggregations);
		for (unsigned colour = 0; colour < up1_of.size(); colour++)
			m_colours_of[up1_of[colour]].add(colour);
		m_all.resize(size_t{layout.pods} * layout.aggregations);
		for (uint32_t pod = 0; pod < layout.pods; pod++) {
			for (unsigned up1 = 0; up1 < layout.aggregations; up1++) {
				const uint8_t *up = fabric.aggregation_uplink.data() + layout.aggregation_uplink(pod, up1, 0);
				m_all[group(pod, up1)] = std::accumulate(up, up + layout.group, 0);
			}
		}
		std::vector<int32_t> from_racks(m_all.size());
		for (uint32_t rack = 0; rack < layout.racks; rack++) {
			for (unsigned up1 = 0; up1 < layout.aggregations; up1++)
				from_racks[group(layout.pod_of[rack], up1)] += fabric.edge_uplink[layout.edge_uplink(rack, up1)];
		}
		for (size_t each = 0; each < m_all.size(); each++)
			m_scarce |= m_all[each] < from_racks[each];
		m_scarce &= layout.pods > 1;
	}

	/* Whether racks have more uplinks than aggregation switches anywhere. */
	bool scarce() const { return m_scarce; }

	/* Begin a slot. */
	void renew()
	{
		m_exceeded = 0;
		for (Direction &direction : m_directions) {
			direction.left = m_all;
			direction.allowed.assign(m_layout.pods, {});
			for (uint32_t pod = 0; pod < m_layout.pods; pod++) {
				for (unsigned up1 = 0; up1 < m_layout.aggregations; up1++) {
					if (m_all[group(pod, up1)])
						direction.allowed[pod] = direction.allowed[pod] | m_colours_of[up1];
				}
			}
		}
	}

	Bits<Words> allowed(Edge edge) const override
	{
		const uint8_t from = m_layout.pod_of[edge.left], to = m_layout.pod_of[edge.right];
		if (from == to)
			return Bits<Words>::all();
		return m_directions[0].allowed[from] & m_directions[1].allowed[to];
	}

	void change(Edge edge, unsigned from, unsigned to) override
	{
		const uint8_t pods[] = {m_layout.pod_of[edge.left], m_layout.pod_of[edge.right]};
		if (pods[0] == pods[1])
			return;
		for (bool direction : {false, true}) {
			if (from < Bits<Words>::SIZE)
				add(m_directions[direction], pods[direction], m_up1_of[from], 1);
			if (to < Bits<Words>::SIZE)
				add(m_directions[direction], pods[direction], m_up1_of[to], -1);
		}
	}

	bool exceeded() const override { return m_exceeded > 0; }

private:
	struct Direction {
		std::vector<int32_t> left;        /* [group] */
		std::vector<Bits<Words>> allowed; /* [pod] */
	};

	void add(Direction &direction, uint8_t pod, unsigned up1, int32_t more)
	{
		int32_t &left = direction.left[group(pod, up1)];
		m_exceeded -= left < 0;
		left += more;
		m_exceeded += left < 0;
		Bits<Words> &allowed = direction.allowed[pod];
		allowed = left > 0 ? allowed | m_colours_of[up1] : allowed - m_colours_of[up1];
	}

	size_t group(uint32_t pod, unsigned up1) const { return size_t{pod} * m_layout.aggregations + up1; }

	const Layout &m_layout;
	const std::vector<uint8_t> &m_up1_of;
	std::vector<Bits<Words>> m_colours_of; /* [up1] */
	std::vector<int32_t> m_all; /* [group] */
	bool m_scarce = false;
	int m_exceeded = 0; /* groups beyond their limits */
	Direction m_directions[2]; /* from and to pods */
};

} // namespace sopa::allocator

#endif
