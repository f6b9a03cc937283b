#include "demands.h"

namespace sopa::allocator {

namespace {

constexpr unsigned FIRST_SIZE_LOG = 10;
constexpr size_t MANY_DEAD = 4096, MANY_SERVED = 16384;

} // namespace

static_assert(Demands::BUCKETS % 64 == 0, "m_occupied has whole words");

Demands::Demands() : m_buckets(BUCKETS), m_places(size_t{1} << FIRST_SIZE_LOG, Place{0, NONE}), m_shift(64 - FIRST_SIZE_LOG) {}

void Demands::set(uint32_t source, uint32_t destination, uint32_t cells)
{
	const size_t place = find(pair_of(source, destination));
	const uint32_t number = m_places[place].entry;
	if (number == NONE) {
		if (cells)
			add(source, destination, cells);
		return;
	}
	Entry &entry = m_entries[number];
	if (cells == entry.cells)
		return;
	if (entry.state == State::served) {
		m_live++;
		entry.state = State::waiting;
		move({source, destination, cells, number});
		forget_served();
	} else if (cells && (entry.state == State::parked || bucket_of(cells) == bucket_of(entry.cells))) {
		/* it keeps its place: of demands that grow with every report, others would always be first */
		entry.cells = cells;
		change(number);
	} else {
		kill(number);
		forget(place);
		if (cells)
			add(source, destination, cells);
	}
}

void Demands::give_back(uint32_t source, uint32_t destination)
{
	const uint32_t left = cells(source, destination);
	set(source, destination, left + (left < UINT32_MAX));
}

void Demands::unpark()
{
	for (Copy &copy : m_parked) {
		if (!renew(copy)) {
			drop(copy);
			continue;
		}
		m_entries[copy.entry].state = State::waiting;
		move(copy);
	}
	m_parked.clear();
}

void Demands::sweep()
{
	if (m_dead < MANY_DEAD || m_dead < m_live)
		return;
	const auto keep_live = [this](std::vector<Copy> &copies) {
		size_t kept = 0;
		for (Copy &copy : copies) {
			if (renew(copy))
				copies[kept++] = copy;
			else
				drop(copy);
		}
		copies.resize(kept);
	};
	for (unsigned number = next(0); number < BUCKETS; number = next(number + 1)) {
		keep_live(m_buckets[number]);
		if (m_buckets[number].empty())
			emptied(number);
	}
	keep_live(m_parked);
}

unsigned Demands::previous(unsigned from) const
{
	uint64_t here = m_occupied.word[from / 64] & below(from % 64 + 1);
	for (unsigned at = from / 64;; here = m_occupied.word[--at]) {
		if (here)
			return 64 * at + highest(here);
		if (!at)
			return BUCKETS;
	}
}

size_t Demands::find(uint64_t pair) const
{
	const size_t mask = m_places.size() - 1;
	size_t place = home(pair);
	while (m_places[place].entry != NONE && m_places[place].pair != pair)
		place = (place + 1) & mask;
	return place;
}

/* Free a place, and move those up that were pushed behind it (Knuth, TAOCP volume 3, section 6.4, algorithm R). */
void Demands::forget(size_t place)
{
	const size_t mask = m_places.size() - 1;
	for (size_t other = (place + 1) & mask; m_places[other].entry != NONE; other = (other + 1) & mask) {
		if (((other - home(m_places[other].pair)) & mask) >= ((other - place) & mask)) {
			m_places[place] = m_places[other];
			place = other;
		}
	}
	m_places[place].entry = NONE;
	m_indexed--;
}

/* Forget up to two served demands that were served long ago: no more can have come since this was done last. */
void Demands::forget_served()
{
	for (unsigned turn = 0; turn < 2 && m_served.size() - m_first_served > MANY_SERVED; turn++) {
		const Copy &copy = m_served[m_first_served++];
		const size_t place = find(pair_of(copy.source, copy.destination));
		const uint32_t number = m_places[place].entry;
		if (number == copy.entry && m_entries[number].state == State::served) {
			m_unused.push_back(number);
			forget(place);
		}
	}
	if (m_first_served > MANY_SERVED) { /* as many stay */
		m_served.erase(m_served.begin(), m_served.begin() + static_cast<ptrdiff_t>(m_first_served));
		m_first_served = 0;
	}
}

void Demands::grow()
{
	std::vector<Place> old(m_places.size() * 2, Place{0, NONE});
	old.swap(m_places);
	m_shift--;
	for (const Place &each : old) {
		if (each.entry != NONE)
			m_places[find(each.pair)] = each;
	}
}

void Demands::add(uint32_t source, uint32_t destination, uint32_t cells)
{
	forget_served();
	if (m_indexed * 2 >= m_places.size())
		grow();
	uint32_t number;
	if (m_unused.empty()) {
		number = static_cast<uint32_t>(m_entries.size());
		m_entries.emplace_back();
		m_changed.resize(number / 64 + 1);
	} else {
		number = m_unused.back();
		m_unused.pop_back();
	}
	m_entries[number] = {cells, State::waiting};
	const uint64_t pair = pair_of(source, destination);
	m_places[find(pair)] = {pair, number};
	m_indexed++;
	m_live++;
	move({source, destination, cells, number});
}

void Demands::kill(uint32_t entry)
{
	m_entries[entry] = {0, State::dead};
	change(entry);
	m_live--;
	m_dead++;
}

} // namespace sopa::allocator
