/* Sets of small numbers as bitmaps, with the operations that find-first-set makes fast. Plain code: no instruction beyond those of x86-64. */
#ifndef SOPA_ALLOCATOR_BITS_H
#define SOPA_ALLOCATOR_BITS_H

#include <cstdint>

namespace sopa::allocator {

inline unsigned lowest(uint64_t set) { return static_cast<unsigned>(__builtin_ctzll(set)); }
inline unsigned highest(uint64_t set) { return 63u - static_cast<unsigned>(__builtin_clzll(set)); }

/* Without the instruction, GCC's own is a call (Hacker's Delight, section 5-1). */
inline unsigned count(uint64_t set)
{
	set -= set >> 1 & 0x5555555555555555;
	set = (set & 0x3333333333333333) + (set >> 2 & 0x3333333333333333);
	return static_cast<unsigned>(((set + (set >> 4)) & 0x0f0f0f0f0f0f0f0f) * 0x0101010101010101 >> 56);
}

/* The lowest `wanted` members, of a set that has more. */
inline uint64_t lowest_of(uint64_t set, unsigned wanted)
{
	constexpr uint64_t BYTES = 0x0101010101010101, HIGH = 0x8080808080808080;
	/* byte by byte how many members there are up to its end, and in how many bytes these are no more than wanted (Vigna, Broadword
	   Implementation of Rank/Select Queries, 2008) */
	uint64_t sums = set - (set >> 1 & 0x5555555555555555);
	sums = (sums & 0x3333333333333333) + (sums >> 2 & 0x3333333333333333);
	sums = ((sums + (sums >> 4)) & 0x0f0f0f0f0f0f0f0f) * BYTES;
	const uint64_t whole = (((wanted * BYTES | HIGH) - sums) & HIGH) >> 7;
	const unsigned bits = static_cast<unsigned>(whole * BYTES >> 56) * 8; /* less than 64, as the set has more than wanted */
	unsigned more = wanted - static_cast<unsigned>(sums << 8 >> bits & 0xff);
	uint64_t rest = set >> bits << bits;
	while (more--)
		rest &= rest - 1;
	return set ^ rest;
}

/* The numbers from 0 to below `size`, at most 64. */
inline uint64_t below(unsigned size) { return size == 64 ? ~uint64_t{0} : (uint64_t{1} << size) - 1; }

/* A set of numbers below 64 * Words. */
template <unsigned Words> struct Bits {
	static constexpr unsigned SIZE = 64 * Words;

	uint64_t word[Words] = {};

	static Bits all()
	{
		Bits all;
		for (uint64_t &each : all.word)
			each = ~uint64_t{0};
		return all;
	}

	bool has(unsigned number) const { return word[number / 64] >> number % 64 & 1; }
	void add(unsigned number) { word[number / 64] |= uint64_t{1} << number % 64; }
	void remove(unsigned number) { word[number / 64] &= ~(uint64_t{1} << number % 64); }

	bool operator==(const Bits &other) const
	{
		bool same = true;
		for (unsigned i = 0; i < Words; i++)
			same &= word[i] == other.word[i];
		return same;
	}

	bool any() const
	{
		uint64_t all = 0;
		for (uint64_t each : word)
			all |= each;
		return all != 0;
	}

	/* The lowest member from a number on; SIZE if there is none. */
	unsigned next(unsigned from) const
	{
		if (from >= SIZE)
			return SIZE;
		uint64_t here = word[from / 64] & ~uint64_t{0} << from % 64;
		for (unsigned at = from / 64;;) {
			if (here)
				return 64 * at + lowest(here);
			if (++at == Words)
				return SIZE;
			here = word[at];
		}
	}

	/* The lowest member from a number on, or else of all; SIZE of an empty set. */
	unsigned around(unsigned from) const
	{
		if constexpr (Words == 1) {
			const uint64_t above = word[0] & ~uint64_t{0} << from;
			const uint64_t first = above ? above : word[0];
			return first ? lowest(first) : SIZE;
		} else {
			const unsigned above = next(from);
			return above < SIZE ? above : next(0);
		}
	}
};

template <unsigned Words> Bits<Words> operator&(const Bits<Words> &a, const Bits<Words> &b)
{
	Bits<Words> both;
	for (unsigned i = 0; i < Words; i++)
		both.word[i] = a.word[i] & b.word[i];
	return both;
}

template <unsigned Words> Bits<Words> operator|(const Bits<Words> &a, const Bits<Words> &b)
{
	Bits<Words> either;
	for (unsigned i = 0; i < Words; i++)
		either.word[i] = a.word[i] | b.word[i];
	return either;
}

template <unsigned Words> Bits<Words> operator-(const Bits<Words> &a, const Bits<Words> &b)
{
	Bits<Words> left;
	for (unsigned i = 0; i < Words; i++)
		left.word[i] = a.word[i] & ~b.word[i];
	return left;
}

} // namespace sopa::allocator

#endif
