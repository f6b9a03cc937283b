#include "packing.h"

#include <algorithm>
#include <numeric>

namespace sopa::allocator {

namespace {

constexpr size_t POPULATION = 20, SURVIVORS = POPULATION / 2;
constexpr unsigned GENERATIONS = 20;
constexpr size_t WINDOWS = 4; /* a window is such a part of a chromosome */

class Packing final : public PathFinder {
public:
	Packing(const Layout &layout, const Fabric &fabric, Paths paths, uint64_t seed);

	size_t assign(Grant *grants, size_t count) override;

private:
	/* An order of racks, and what it is worth. */
	struct Chromosome {
		std::vector<uint16_t> racks;
		size_t placed = 0; /* cells with a path */
		size_t window = 0; /* where its fittest sequence begins */
	};

	void sort_by_rack(const Grant *grants, size_t count);
	void sort_racks();
	void evolve();
	void populate();
	void breed(Chromosome &child);
	void evaluate(Chromosome &chromosome);
	size_t pack(const std::vector<uint16_t> &racks);
	bool place(uint16_t from, size_t at);
	size_t window_size() const { return std::max<size_t>(1, m_population[0].racks.size() / WINDOWS); }

	const Layout &m_layout;
	const bool m_first_fit, m_genetic;
	Draw m_draw;
	Occupancy m_occupancy;
	std::vector<uint32_t> m_first;       /* [rack], and one more: its cells between racks, in the following */
	std::vector<uint32_t> m_cells;       /* numbers of grants */
	std::vector<uint16_t> m_to;          /* the destinations' racks */
	std::vector<uint8_t> m_up1, m_up2;   /* of each: what the last order has given */
	std::vector<uint32_t> m_failed;      /* [rack]: cells to which it has given none */
	std::vector<uint8_t> m_aggregation;  /* [rack]: the switch where a search begins */
	std::vector<uint8_t> m_core;         /* [pod * aggregations + up1]: the same */
	std::vector<Chromosome> m_population{POPULATION};
	std::vector<uint8_t> m_taken;        /* [rack]: in the window that a child begins with */
};

Packing::Packing(const Layout &layout, const Fabric &fabric, Paths paths, uint64_t seed)
    : m_layout(layout), m_first_fit(paths == Paths::first_fit || paths == Paths::first_fit_ga),
      m_genetic(paths == Paths::next_fit_ga || paths == Paths::first_fit_ga), m_draw(seed), m_occupancy(layout, fabric), m_failed(layout.racks), m_aggregation(layout.racks),
      m_core(size_t{layout.pods} * layout.aggregations), m_taken(layout.racks)
{
}

size_t Packing::assign(Grant *grants, size_t count)
{
	sort_by_rack(grants, count);
	if (m_cells.empty())
		return 0;
	sort_racks();
	if (m_genetic)
		evolve();
	const size_t placed = pack(m_population[0].racks);
	for (size_t at = 0; at < m_cells.size(); at++) {
		grants[m_cells[at]].up1 = m_up1[at];
		grants[m_cells[at]].up2 = m_up2[at];
	}
	return m_cells.size() - placed;
}

/* Section 4.2: let the first chromosome be the fittest one that is found. */
void Packing::evolve()
{
	populate();
	const auto fitter = [](const Chromosome &one, const Chromosome &other) { return one.placed > other.placed; };
	for (unsigned generation = 0; generation < GENERATIONS; generation++) {
		std::stable_sort(m_population.begin(), m_population.end(), fitter);
		if (m_population[0].placed == m_cells.size())
			break;
		for (size_t child = SURVIVORS; child < POPULATION; child++)
			breed(m_population[child]);
	}
	std::iter_swap(m_population.begin(), std::min_element(m_population.begin(), m_population.end(), fitter));
}

/* Step 1: the demand of each rack. */
void Packing::sort_by_rack(const Grant *grants, size_t count)
{
	m_first.assign(m_layout.racks + 1, 0);
	for (size_t cell = 0; cell < count; cell++) {
		const uint16_t from = m_layout.rack_of[grants[cell].source];
		m_first[from + 1] += from != m_layout.rack_of[grants[cell].destination];
	}
	std::partial_sum(m_first.begin(), m_first.end(), m_first.begin());
	const size_t size = m_first.back();
	m_cells.resize(size);
	m_to.resize(size);
	m_up1.resize(size);
	m_up2.resize(size);
	std::vector<uint32_t> next = m_first;
	for (size_t cell = 0; cell < count; cell++) {
		const uint16_t from = m_layout.rack_of[grants[cell].source], to = m_layout.rack_of[grants[cell].destination];
		if (from == to)
			continue;
		const uint32_t at = next[from]++;
		m_cells[at] = static_cast<uint32_t>(cell);
		m_to[at] = to;
	}
}

/* Step 2: the first chromosome is the racks that send, by decreasing demand. */
void Packing::sort_racks()
{
	std::vector<uint16_t> &racks = m_population[0].racks;
	racks.clear();
	const auto demand = [this](uint32_t rack) { return m_first[rack + 1] - m_first[rack]; };
	for (uint32_t rack = 0; rack < m_layout.racks; rack++) {
		if (demand(rack))
			racks.push_back(static_cast<uint16_t>(rack));
	}
	std::stable_sort(racks.begin(), racks.end(), [&](uint16_t one, uint16_t other) { return demand(one) > demand(other); });
}

/* The other chromosomes are orders by chance. */
void Packing::populate()
{
	evaluate(m_population[0]);
	const std::vector<uint16_t> &racks = m_population[0].racks;
	for (size_t number = 1; number < POPULATION; number++) {
		Chromosome &chromosome = m_population[number];
		chromosome.racks = racks;
		for (size_t left = racks.size(); left > 1; left--)
			std::swap(chromosome.racks[left - 1], chromosome.racks[m_draw(static_cast<uint32_t>(left))]);
		evaluate(chromosome);
	}
}

/*
 * Make a child of two survivors. It begins with the fittest window of the first, preserved at the front, where nothing is before it that could
 * take its place (the reduction), and goes on with the others in the order of the second. Two of these change places (mutation).
 */
void Packing::breed(Chromosome &child)
{
	const Chromosome &first = m_population[m_draw(SURVIVORS)], &second = m_population[m_draw(SURVIVORS)];
	const size_t size = window_size();
	const auto begin = first.racks.begin() + static_cast<ptrdiff_t>(first.window);
	child.racks.assign(begin, begin + static_cast<ptrdiff_t>(size));
	for (uint16_t rack : child.racks)
		m_taken[rack] = 1;
	for (uint16_t rack : second.racks) {
		if (!m_taken[rack])
			child.racks.push_back(rack);
	}
	for (size_t at = 0; at < size; at++)
		m_taken[child.racks[at]] = 0;
	if (const auto rest = static_cast<uint32_t>(child.racks.size() - size); rest > 1)
		std::swap(child.racks[size + m_draw(rest)], child.racks[size + m_draw(rest)]);
	evaluate(child);
}

/* Find how many cells get a path, and slide a window over the racks to see where the fewest get none. */
void Packing::evaluate(Chromosome &chromosome)
{
	const std::vector<uint16_t> &racks = chromosome.racks;
	chromosome.placed = pack(racks);
	const size_t size = window_size();
	size_t failed = 0, least = SIZE_MAX;
	for (size_t end = 0; end < racks.size(); end++) {
		failed += m_failed[racks[end]];
		if (end >= size)
			failed -= m_failed[racks[end - size]];
		if (end + 1 >= size && failed < least) {
			least = failed;
			chromosome.window = end + 1 - size;
		}
	}
}

/* Steps 3 to 16. Returns how many cells have got a path. */
size_t Packing::pack(const std::vector<uint16_t> &racks)
{
	m_occupancy.clear();
	std::fill(m_aggregation.begin(), m_aggregation.end(), 0);
	std::fill(m_core.begin(), m_core.end(), 0);
	size_t placed = 0;
	for (uint16_t rack : racks) {
		m_failed[rack] = 0;
		for (size_t at = m_first[rack]; at < m_first[rack + 1]; at++) {
			const bool found = place(rack, at);
			m_failed[rack] += !found;
			placed += found;
		}
	}
	return placed;
}

bool Packing::place(uint16_t from, size_t at)
{
	const uint16_t to = m_to[at];
	const uint8_t pod = m_layout.pod_of[from];
	if (m_first_fit) {
		m_aggregation[from] = 0;
		std::fill_n(m_core.begin() + ptrdiff_t{pod} * m_layout.aggregations, m_layout.aggregations, uint8_t{0});
	}
	for (uint8_t &up1 = m_aggregation[from]; up1 < m_layout.aggregations; up1++) {
		m_up1[at] = up1;
		m_up2[at] = NO_HOP;
		if (pod == m_layout.pod_of[to]) {
			if (m_occupancy.put(from, to, up1, 0))
				return true;
			continue;
		}
		for (uint8_t &up2 = m_core[size_t{pod} * m_layout.aggregations + up1]; up2 < m_layout.group; up2++) {
			if (m_occupancy.put(from, to, up1, up2)) {
				m_up2[at] = up2;
				return true;
			}
		}
	}
	m_up1[at] = m_up2[at] = NO_HOP;
	return false;
}

} // namespace

std::unique_ptr<PathFinder> make_packing(const Layout &layout, const Fabric &fabric, Paths paths, uint64_t seed)
{
	return std::make_unique<Packing>(layout, fabric, paths, seed);
}

} // namespace sopa::allocator
