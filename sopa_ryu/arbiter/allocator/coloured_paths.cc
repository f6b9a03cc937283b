#include "coloured_paths.h"

#include "colouring.h"
#include "palette.h"
#include "pod_quota.h"

#include <numeric>

namespace sopa::allocator {

namespace {

constexpr unsigned MAX_COLOURS = 1024;

/* The uplinks of edge switches. */
Uplinks edge_uplinks(const Layout &its, const Fabric &fabric)
{
	const uint32_t host = *std::max_element(fabric.host.begin(), fabric.host.end());
	const uint32_t most = std::min(its.hosts_of_rack * host, MAX_COLOURS / its.aggregations);
	return {fabric.edge_uplink.data(), its.racks, its.aggregations, its.aggregations, most};
}

/* The uplinks of the aggregation switches of index `up1`. */
Uplinks aggregation_uplinks(const Layout &its, const Fabric &fabric, unsigned up1)
{
	const uint8_t *first = fabric.aggregation_uplink.data() + its.aggregation_uplink(0, up1, 0);
	return {first, its.pods, its.cores, its.group, MAX_COLOURS / std::max(1u, its.group)};
}

template <unsigned Words> std::vector<Palette<Words>> palettes(const Layout &layout, const Fabric &fabric)
{
	std::vector<Palette<Words>> all;
	for (unsigned up1 = 0; layout.cores && up1 < layout.aggregations; up1++)
		all.emplace_back(aggregation_uplinks(layout, fabric, up1));
	return all;
}

template <unsigned Words> class ColouredPaths final : public PathFinder {
public:
	ColouredPaths(const Layout &layout, const Fabric &fabric, uint64_t seed);

	size_t assign(Grant *grants, size_t count) override;

private:
	void colour_racks(Grant *grants, size_t count);
	void colour_pods(Grant *grants);
	size_t repair(Grant *grants, size_t count);
	bool take_first(Grant &grant);

	const Layout &m_layout;
	Draw m_draw;
	Palette<Words> m_racks;
	std::vector<Palette<Words>> m_pods; /* [up1] */
	PodQuota<Words> m_quota;
	Colouring<Words> m_rack_colouring;
	std::vector<Colouring<Words>> m_pod_colourings; /* [up1] */
	Occupancy m_occupancy;
	std::vector<Edge> m_edges;
	std::vector<uint32_t> m_cells; /* the number of the cell of each edge */
	std::vector<uint16_t> m_colours;
	std::vector<uint32_t> m_of_group, m_first_of_group; /* cells between pods by up1; where each begins */
	size_t m_without = 0;
};

template <unsigned Words>
ColouredPaths<Words>::ColouredPaths(const Layout &layout, const Fabric &fabric, uint64_t seed)
    : m_layout(layout), m_draw(seed), m_racks(edge_uplinks(layout, fabric)), m_pods(palettes<Words>(layout, fabric)),
      m_quota(layout, fabric, m_racks.uplink_of),
      m_rack_colouring(m_racks.available, m_racks.colours()), m_occupancy(layout, fabric)
{
	for (const Palette<Words> &palette : m_pods)
		m_pod_colourings.emplace_back(palette.available, palette.colours());
}

template <unsigned Words> size_t ColouredPaths<Words>::assign(Grant *grants, size_t count)
{
	m_without = 0;
	colour_racks(grants, count);
	if (!m_pods.empty())
		colour_pods(grants);
	return m_without ? repair(grants, count) : 0;
}

template <unsigned Words> void ColouredPaths<Words>::colour_racks(Grant *grants, size_t count)
{
	m_edges.clear();
	m_cells.clear();
	for (size_t cell = 0; cell < count; cell++) {
		const uint16_t from = m_layout.rack_of[grants[cell].source], to = m_layout.rack_of[grants[cell].destination];
		if (from != to) {
			m_edges.push_back({from, to});
			m_cells.push_back(static_cast<uint32_t>(cell));
		}
	}
	m_colours.resize(m_edges.size());
	const std::vector<uint8_t> &uplink_of = m_racks.uplink_of;
	const unsigned first = m_draw(m_racks.colours());
	PodQuota<Words> *quota = m_quota.scarce() ? &m_quota : nullptr;
	if (quota)
		quota->renew();
	m_without += m_rack_colouring.colour(m_edges.data(), m_edges.size(), first, m_colours.data(), quota);
	m_first_of_group.assign(m_layout.aggregations + 1, 0);
	for (size_t edge = 0; edge < m_edges.size(); edge++) {
		if (m_colours[edge] == NO_COLOUR)
			continue;
		const uint8_t up1 = uplink_of[m_colours[edge]];
		grants[m_cells[edge]].up1 = up1;
		m_first_of_group[up1 + 1] += m_layout.pod_of[m_edges[edge].left] != m_layout.pod_of[m_edges[edge].right];
	}
}

template <unsigned Words> void ColouredPaths<Words>::colour_pods(Grant *grants)
{
	std::partial_sum(m_first_of_group.begin(), m_first_of_group.end(), m_first_of_group.begin());
	m_of_group.resize(m_first_of_group.back());
	std::vector<uint32_t> &next = m_first_of_group; /* afterwards where each group ends */
	for (size_t edge = 0; edge < m_edges.size(); edge++) {
		const uint32_t cell = m_cells[edge];
		if (m_colours[edge] != NO_COLOUR && m_layout.pod_of[m_edges[edge].left] != m_layout.pod_of[m_edges[edge].right])
			m_of_group[next[grants[cell].up1]++] = cell;
	}
	size_t begin = 0;
	for (unsigned up1 = 0; up1 < m_layout.aggregations; up1++) {
		const size_t count = next[up1] - begin;
		const uint32_t *cells = m_of_group.data() + begin;
		begin = next[up1];
		m_edges.resize(count);
		m_colours.resize(count);
		for (size_t edge = 0; edge < count; edge++) {
			const Grant &grant = grants[cells[edge]];
			m_edges[edge].left = m_layout.pod_of[m_layout.rack_of[grant.source]];
			m_edges[edge].right = m_layout.pod_of[m_layout.rack_of[grant.destination]];
		}
		const Palette<Words> &palette = m_pods[up1];
		const unsigned first = m_draw(palette.colours());
		m_without += m_pod_colourings[up1].colour(m_edges.data(), count, first, m_colours.data());
		for (size_t edge = 0; edge < count; edge++) {
			Grant &grant = grants[cells[edge]];
			if (m_colours[edge] == NO_COLOUR)
				grant.up1 = NO_HOP;
			else
				grant.up2 = palette.uplink_of[m_colours[edge]];
		}
	}
}

/* Returns how many cells still have no path. */
template <unsigned Words> size_t ColouredPaths<Words>::repair(Grant *grants, size_t count)
{
	m_occupancy.clear();
	m_cells.clear();
	for (size_t cell = 0; cell < count; cell++) {
		const Grant &grant = grants[cell];
		const uint16_t from = m_layout.rack_of[grant.source], to = m_layout.rack_of[grant.destination];
		if (from == to)
			continue;
		if (grant.up1 == NO_HOP)
			m_cells.push_back(static_cast<uint32_t>(cell));
		else
			m_occupancy.put(from, to, grant.up1, grant.up2);
	}
	size_t without = 0;
	for (uint32_t cell : m_cells)
		without += !take_first(grants[cell]);
	return without;
}

template <unsigned Words> bool ColouredPaths<Words>::take_first(Grant &grant)
{
	const uint16_t from = m_layout.rack_of[grant.source], to = m_layout.rack_of[grant.destination];
	const bool within = m_layout.pod_of[from] == m_layout.pod_of[to];
	for (unsigned up1 = 0; up1 < m_layout.aggregations; up1++) {
		for (unsigned up2 = 0; up2 < (within ? 1 : m_layout.group); up2++) {
			if (m_occupancy.put(from, to, up1, up2)) {
				grant.up1 = static_cast<uint8_t>(up1);
				grant.up2 = within ? NO_HOP : static_cast<uint8_t>(up2);
				return true;
			}
		}
	}
	return false;
}

} // namespace

std::unique_ptr<PathFinder> make_coloured_paths(const Layout &layout, const Fabric &fabric, uint64_t seed)
{
	unsigned colours = edge_uplinks(layout, fabric).colours();
	for (unsigned up1 = 0; layout.cores && up1 < layout.aggregations; up1++)
		colours = std::max(colours, aggregation_uplinks(layout, fabric, up1).colours());
	if (colours <= Bits<1>::SIZE)
		return std::make_unique<ColouredPaths<1>>(layout, fabric, seed);
	if (colours <= Bits<4>::SIZE)
		return std::make_unique<ColouredPaths<4>>(layout, fabric, seed);
	return std::make_unique<ColouredPaths<MAX_COLOURS / 64>>(layout, fabric, seed);
}

} // namespace sopa::allocator
