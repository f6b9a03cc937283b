#include "paths.h"

namespace sopa::allocator {

Occupancy::Occupancy(const Layout &layout, const Fabric &fabric)
    : m_layout(layout), m_edge(fabric.edge_uplink), m_aggregation(fabric.aggregation_uplink)
{
}

void Occupancy::clear()
{
	m_from_edge = m_to_edge = m_edge;
	m_from_aggregation = m_to_aggregation = m_aggregation;
}

bool Occupancy::put(uint32_t from, uint32_t to, unsigned up1, unsigned up2)
{
	const size_t up = m_layout.edge_uplink(from, up1), down = m_layout.edge_uplink(to, up1);
	if (!m_from_edge[up] || !m_to_edge[down])
		return false;
	const uint8_t source = m_layout.pod_of[from], destination = m_layout.pod_of[to];
	if (source != destination) {
		const size_t above = m_layout.aggregation_uplink(source, up1, up2), back = m_layout.aggregation_uplink(destination, up1, up2);
		if (!m_from_aggregation[above] || !m_to_aggregation[back])
			return false;
		m_from_aggregation[above]--;
		m_to_aggregation[back]--;
	}
	m_from_edge[up]--;
	m_to_edge[down]--;
	return true;
}

} // namespace sopa::allocator
