/*
 * What is left to send between hosts, in buckets by cells. Buckets hold copies, in the order in which the demands came to have so many
 * cells, so that going through one reads memory in a row and nothing else. A demand that is replaced leaves a dead copy behind, which is dropped when
 * it is met, or when there are more dead copies than demands. A demand that is served stays in the index, since many come again; the
 * first ones to be served are forgotten when others come.
 */
#ifndef SOPA_ALLOCATOR_DEMANDS_H
#define SOPA_ALLOCATOR_DEMANDS_H

#include "bits.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sopa::allocator {

class Demands {
public:
	struct Copy {
		uint32_t source, destination;
		uint32_t cells;
		uint32_t entry;
	};

	/* One bucket for each number of cells below EXACT, and above it 16 for each power of two. */
	static constexpr unsigned EXACT = 256, OF_POWER = 16, BUCKETS = EXACT + (32 - 8) * OF_POWER;

	Demands();

	static unsigned bucket_of(uint32_t cells)
	{
		if (cells < EXACT)
			return cells;
		const unsigned power = highest(cells);
		return EXACT + (power - 8) * OF_POWER + (cells >> (power - 4) & (OF_POWER - 1));
	}

	/* Set the cells between two hosts; 0 removes them. */
	void set(uint32_t source, uint32_t destination, uint32_t cells);

	/* What is left between two hosts. */
	uint32_t cells(uint32_t source, uint32_t destination) const
	{
		const uint32_t number = m_places[find(pair_of(source, destination))].entry;
		return number == NONE ? 0 : m_entries[number].cells;
	}

	/* Give back a cell that was taken. */
	void give_back(uint32_t source, uint32_t destination);

	/* Make all parked demands ordinary ones. */
	void unpark();

	/* Forget dead copies, where there are many. Not while a bucket is read. */
	void sweep();

	/* The lowest bucket from a number on that may have copies, and the highest up to a number; BUCKETS if there is none. */
	unsigned next(unsigned from) const { return m_occupied.next(from); }
	unsigned previous(unsigned from) const;

	std::vector<Copy> &bucket(unsigned number) { return m_buckets[number]; }

	/* A bucket has no copies any more. */
	void emptied(unsigned bucket) { m_occupied.remove(bucket); }

	/* Give a copy the cells of its demand, where that was set while it waited. Returns whether it is one: a dead one is to be dropped. */
	bool renew(Copy &copy)
	{
		uint64_t &changed = m_changed[copy.entry / 64];
		const uint64_t bit = uint64_t{1} << copy.entry % 64;
		if (!(changed & bit))
			return true;
		const Entry &entry = m_entries[copy.entry];
		if (entry.state == State::dead)
			return false;
		copy.cells = entry.cells;
		changed &= ~bit;
		return true;
	}

	/* What happens to a copy that has left its place: it goes to the end of a bucket, or is done. */
	void move(const Copy &copy)
	{
		m_entries[copy.entry].cells = copy.cells;
		const unsigned to = bucket_of(copy.cells);
		m_buckets[to].push_back(copy);
		m_occupied.add(to);
	}
	void finish(const Copy &copy)
	{
		m_entries[copy.entry] = {0, State::served};
		m_served.push_back(copy);
		m_live--;
	}

	/* The copy is dead, or waits for `unpark`. */
	void drop(const Copy &copy)
	{
		m_changed[copy.entry / 64] &= ~(uint64_t{1} << copy.entry % 64);
		m_unused.push_back(copy.entry);
		m_dead--;
	}
	void park(const Copy &copy)
	{
		m_entries[copy.entry].state = State::parked;
		m_parked.push_back(copy);
	}

private:
	static constexpr uint32_t NONE = UINT32_MAX;

	enum class State : uint32_t { waiting, parked, served, dead };

	struct Entry {
		uint32_t cells;
		State state;
	};

	struct Place {
		uint64_t pair;
		uint32_t entry;
	};

	static uint64_t pair_of(uint32_t source, uint32_t destination) { return uint64_t{source} << 32 | destination; }
	size_t home(uint64_t pair) const { return pair * 0x9e3779b97f4a7c15 >> m_shift; }
	size_t find(uint64_t pair) const; /* its place, or the free one where it belongs */
	void forget(size_t place);
	void forget_served();
	void grow();
	void add(uint32_t source, uint32_t destination, uint32_t cells);
	void kill(uint32_t entry);
	void change(uint32_t entry) { m_changed[entry / 64] |= uint64_t{1} << entry % 64; }

	std::vector<std::vector<Copy>> m_buckets;
	std::vector<Copy> m_parked;
	Bits<BUCKETS / 64> m_occupied;
	std::vector<Entry> m_entries;
	std::vector<uint64_t> m_changed; /* a bit for each entry: not as its copy says */
	std::vector<uint32_t> m_unused;  /* entries */
	std::vector<Place> m_places;     /* of pairs, by open addressing */
	unsigned m_shift;
	std::vector<Copy> m_served; /* in their order from m_first_served on; some of them have come again */
	size_t m_first_served = 0;
	size_t m_live = 0, m_dead = 0;
	size_t m_indexed = 0; /* pairs in m_places */
};

} // namespace sopa::allocator

#endif
