#include "reach.h"

#include <algorithm>

namespace sopa::allocator {

Reach::Reach(const Layout &layout) : m_layout(layout) {}

void Reach::follow(const Fabric &fabric)
{
	const auto has_none = [](const std::vector<uint8_t> &capacities) {
		return std::find(capacities.begin(), capacities.end(), 0) != capacities.end();
	};
	m_whole = !has_none(fabric.edge_uplink) && !has_none(fabric.aggregation_uplink);
	const uint32_t pods = m_layout.pods;
	m_uplinks.assign(m_layout.racks, {});
	m_between.assign(m_whole ? 0 : size_t{pods} * pods, {});
	if (m_whole)
		return;
	for (uint32_t rack = 0; rack < m_layout.racks; rack++) {
		for (unsigned up1 = 0; up1 < m_layout.aggregations; up1++) {
			if (fabric.edge_uplink[m_layout.edge_uplink(rack, up1)])
				m_uplinks[rack].add(up1);
		}
	}
	std::vector<Set> cores(pods);
	for (unsigned up1 = 0; up1 < m_layout.aggregations; up1++) {
		for (uint32_t pod = 0; pod < pods; pod++) {
			cores[pod] = {};
			for (unsigned up2 = 0; up2 < m_layout.group; up2++) {
				if (fabric.aggregation_uplink[m_layout.aggregation_uplink(pod, up1, up2)])
					cores[pod].add(up2);
			}
		}
		for (uint32_t from = 0; from < pods; from++) {
			for (uint32_t to = 0; to < pods; to++) {
				if ((cores[from] & cores[to]).any())
					m_between[from * pods + to].add(up1);
			}
		}
	}
}

} // namespace sopa::allocator
