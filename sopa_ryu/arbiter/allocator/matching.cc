#include "matching.h"

#include "budget.h"
#include "reach.h"

#include <numeric>

namespace sopa::allocator {

namespace {

constexpr uint64_t LARGEST_FIRST = 4; /* of so many batches, one of min-max-min begins with the largest demands */

template <typename Slots> class SlotMatching final : public Matching {
public:
	SlotMatching(const Layout &layout, Order order, unsigned batch)
	    : m_layout(layout), m_order(order), m_batch(batch), m_reach(layout), m_reserved(layout.hosts)
	{
	}

	void follow(const Fabric &fabric) override;
	void reserve(uint32_t host, unsigned sending, unsigned receiving) override;
	const std::vector<Match> &match(Demands &demands) override;

private:
	struct Cells {
		uint32_t sending = 0, receiving = 0;
	};

	/* In both directions. */
	struct Budgets {
		void follow(const std::vector<uint32_t> &capacities, unsigned batch, uint32_t most = UINT32_MAX)
		{
			sending.follow(capacities, batch, most);
			receiving.follow(capacities, batch, most);
		}
		void renew()
		{
			sending.renew();
			receiving.renew();
		}

		Budget<Slots> sending, receiving;
	};

	/* A place in a bucket. Copies that come while it is read are not read, and stay. */
	struct Cursor {
		Cursor(Demands &demands, unsigned number) : number(number), copies(&demands.bucket(number)), size(copies->size()) {}

		bool left() const { return at < size; }

		/* Take those out that have been read and not kept. */
		void close(Demands &demands)
		{
			const auto begin = copies->begin();
			copies->erase(begin + static_cast<ptrdiff_t>(kept), begin + static_cast<ptrdiff_t>(at));
			if (copies->empty())
				demands.emptied(number);
		}

		unsigned number;
		std::vector<Demands::Copy> *copies;
		size_t at = 0, kept = 0, size;
	};

	void begin();
	template <bool counted, bool tiers> void walk(Demands &demands);
	template <bool counted, bool tiers> void walk_inwards(Demands &demands, bool largest_first);
	template <bool counted, bool tiers> void visit(Demands &demands, Cursor cursor);
	template <bool counted, bool tiers> void serve_next(Demands &demands, Cursor &cursor);
	template <bool counted, bool tiers> void serve(Demands &demands, Demands::Copy copy, Slots both);
	template <bool tiers> Slots free_of(const Demands::Copy &copy) const;

	const Layout &m_layout;
	Order m_order;
	unsigned m_batch;
	Reach m_reach;
	Budgets m_hosts, m_racks, m_pods;
	bool m_tiers = false; /* racks or pods are scarce, or not all racks have paths to each other */
	std::vector<Cells> m_reserved;
	std::vector<uint32_t> m_reserving; /* hosts that may have an entry there */
	std::vector<Match> m_matches;
	size_t m_senders = 0; /* hosts that may still send */
	uint64_t m_batches = 0;
};

template <typename Slots> void SlotMatching<Slots>::follow(const Fabric &fabric)
{
	const Layout &its = m_layout;
	m_hosts.follow({fabric.host.begin(), fabric.host.end()}, m_batch);
	std::vector<uint32_t> racks(its.racks), pods(its.pods);
	uint32_t of_rack = 0, of_pod = 0; /* the most that hosts below can send */
	for (uint32_t rack = 0; rack < its.racks; rack++) {
		const auto up = fabric.edge_uplink.begin() + static_cast<ptrdiff_t>(its.edge_uplink(rack, 0));
		racks[rack] = std::accumulate(up, up + its.aggregations, 0u);
		const auto host = fabric.host.begin() + static_cast<ptrdiff_t>(size_t{rack} * its.hosts_of_rack);
		of_rack = std::max(of_rack, std::accumulate(host, host + its.hosts_of_rack, 0u));
	}
	for (uint32_t pod = 0; pod < its.pods; pod++) {
		const auto up = fabric.aggregation_uplink.begin() + static_cast<ptrdiff_t>(size_t{pod} * its.cores);
		pods[pod] = std::accumulate(up, up + its.cores, 0u);
		const auto host = fabric.host.begin() + static_cast<ptrdiff_t>(size_t{pod} * its.edges * its.hosts_of_rack);
		of_pod = std::max(of_pod, std::accumulate(host, host + its.edges * its.hosts_of_rack, 0u));
	}
	m_racks.follow(racks, m_batch, of_rack);
	m_pods.follow(pods, m_batch, of_pod);
	m_reach.follow(fabric);
	const auto scarce = [](const std::vector<uint32_t> &capacities, uint32_t most) {
		return std::any_of(capacities.begin(), capacities.end(), [most](uint32_t each) { return each < most; });
	};
	m_tiers = !m_reach.whole() || (its.racks > 1 && scarce(racks, of_rack)) || (its.pods > 1 && scarce(pods, of_pod));
}

template <typename Slots> void SlotMatching<Slots>::reserve(uint32_t host, unsigned sending, unsigned receiving)
{
	m_reserved[host] = {sending, receiving};
	m_reserving.push_back(host);
}

template <typename Slots> void SlotMatching<Slots>::begin()
{
	m_hosts.renew();
	if (m_tiers) {
		m_racks.renew();
		m_pods.renew();
	}
	for (uint32_t host : m_reserving) {
		const unsigned first = static_cast<unsigned>(m_batches + host);
		m_hosts.sending.reserve(host, m_reserved[host].sending, first);
		m_hosts.receiving.reserve(host, m_reserved[host].receiving, first);
		m_reserved[host] = {};
	}
	m_reserving.clear();
	const std::vector<Slots> &free = m_hosts.sending.free;
	m_senders = free.size() - static_cast<size_t>(std::count(free.begin(), free.end(), Slots{0}));
	m_matches.clear();
}

template <typename Slots> const std::vector<Match> &SlotMatching<Slots>::match(Demands &demands)
{
	demands.sweep();
	begin();
	const bool counted = m_hosts.sending.counted();
	if (m_tiers)
		counted ? walk<true, true>(demands) : walk<false, true>(demands);
	else
		counted ? walk<true, false>(demands) : walk<false, false>(demands);
	m_batches++;
	return m_matches;
}

/*
 * Go through the demands in order. One that was served moves to a lower bucket; met again there it has nothing free any more. Now and then
 * min-max-min begins with the largest, so that no small demand can always be before it.
 */
template <typename Slots> template <bool counted, bool tiers> void SlotMatching<Slots>::walk(Demands &demands)
{
	if (m_order == Order::min_max_min)
		walk_inwards<counted, tiers>(demands, m_batches % LARGEST_FIRST == LARGEST_FIRST - 1);
	else if (m_order == Order::smallest || m_batches % 2 == 0)
		for (unsigned number = demands.next(0); number < Demands::BUCKETS && m_senders; number = demands.next(number + 1))
			visit<counted, tiers>(demands, Cursor(demands, number));
	else
		for (unsigned number = demands.previous(Demands::BUCKETS - 1); number < Demands::BUCKETS && m_senders;
		     number = number ? demands.previous(number - 1) : Demands::BUCKETS)
			visit<counted, tiers>(demands, Cursor(demands, number));
}

/* From both ends, one served of each in turn. */
template <typename Slots>
template <bool counted, bool tiers>
void SlotMatching<Slots>::walk_inwards(Demands &demands, bool largest_first)
{
	const unsigned first = demands.next(0), last = demands.previous(Demands::BUCKETS - 1);
	if (first >= last) {
		if (first < Demands::BUCKETS)
			visit<counted, tiers>(demands, Cursor(demands, first));
		return;
	}
	Cursor low(demands, first), high(demands, last);
	for (bool downwards = largest_first; m_senders; downwards = !downwards) {
		Cursor &one = downwards ? high : low, &other = downwards ? low : high;
		if (!one.left()) {
			const unsigned number = downwards ? demands.previous(one.number - 1) : demands.next(one.number + 1);
			if (number == other.number) {
				one.close(demands);
				visit<counted, tiers>(demands, other);
				return;
			}
			one.close(demands);
			one = Cursor(demands, number);
		}
		serve_next<counted, tiers>(demands, one);
	}
	low.close(demands);
	high.close(demands);
}

/* The rest of a bucket. */
template <typename Slots>
template <bool counted, bool tiers>
void SlotMatching<Slots>::visit(Demands &demands, Cursor cursor)
{
	while (cursor.left())
		serve_next<counted, tiers>(demands, cursor);
	cursor.close(demands);
}

/* Serve one demand, if one of those that are left in the bucket has slots free at both of its ends. */
template <typename Slots>
template <bool counted, bool tiers>
inline void SlotMatching<Slots>::serve_next(Demands &demands, Cursor &cursor)
{
	Demands::Copy *const copies = cursor.copies->data();
	const size_t size = cursor.size;
	size_t at = cursor.at, kept = cursor.kept;
	for (bool served = false; at < size && !served; at++) {
		const Demands::Copy copy = copies[at];
		if (const Slots both = free_of<tiers>(copy)) {
			served = true;
			serve<counted, tiers>(demands, copy, both);
			continue;
		}
		if (kept != at)
			copies[kept] = copy;
		kept++;
	}
	cursor.at = at;
	cursor.kept = kept;
}

/* Give a demand slots of those that are free. Its copy leaves its place. */
template <typename Slots>
template <bool counted, bool tiers>
void SlotMatching<Slots>::serve(Demands &demands, Demands::Copy copy, Slots both)
{
	if (!demands.renew(copy)) {
		demands.drop(copy);
		return;
	}
	const uint16_t from = m_layout.rack_of[copy.source], to = m_layout.rack_of[copy.destination];
	if (tiers && from != to && !m_reach.reachable(from, to)) {
		demands.park(copy);
		return;
	}
	do {
		const unsigned room = count(both);
		const Slots taken = copy.cells < room ? static_cast<Slots>(lowest_of(both, copy.cells)) : both;
		copy.cells -= std::min(copy.cells, room);
		m_matches.push_back({copy.source, copy.destination, taken});
		if (counted) {
			m_hosts.sending.take(copy.source, taken);
			m_hosts.receiving.take(copy.destination, taken);
		} else {
			m_hosts.sending.free[copy.source] ^= taken;
			m_hosts.receiving.free[copy.destination] ^= taken;
		}
		m_senders -= !m_hosts.sending.free[copy.source];
		if (tiers && from != to) {
			m_racks.sending.take(from, taken);
			m_racks.receiving.take(to, taken);
			const uint8_t source = m_layout.pod_of[from], destination = m_layout.pod_of[to];
			if (source != destination) {
				m_pods.sending.take(source, taken);
				m_pods.receiving.take(destination, taken);
			}
		}
		both = counted ? free_of<tiers>(copy) : Slots{0};
	} while (both && copy.cells);
	if (!copy.cells) {
		demands.finish(copy);
		return;
	}
	/* In the same bucket it is behind the others: demands that are renewed before they get smaller have slots in turn. */
	demands.move(copy);
}

template <typename Slots> template <bool tiers> Slots SlotMatching<Slots>::free_of(const Demands::Copy &copy) const
{
	Slots both = m_hosts.sending.free[copy.source] & m_hosts.receiving.free[copy.destination];
	if (!tiers || !both)
		return both;
	const uint16_t from = m_layout.rack_of[copy.source], to = m_layout.rack_of[copy.destination];
	if (from == to)
		return both;
	both &= m_racks.sending.free[from] & m_racks.receiving.free[to];
	const uint8_t source = m_layout.pod_of[from], destination = m_layout.pod_of[to];
	return source == destination ? both : static_cast<Slots>(both & m_pods.sending.free[source] & m_pods.receiving.free[destination]);
}

} // namespace

std::unique_ptr<Matching> Matching::make(const Layout &layout, Order order, unsigned batch)
{
	if (batch <= 8)
		return std::make_unique<SlotMatching<uint8_t>>(layout, order, batch);
	if (batch <= 16)
		return std::make_unique<SlotMatching<uint16_t>>(layout, order, batch);
	if (batch <= 32)
		return std::make_unique<SlotMatching<uint32_t>>(layout, order, batch);
	return std::make_unique<SlotMatching<uint64_t>>(layout, order, batch);
}

} // namespace sopa::allocator
