#include "colouring.h"

#include <algorithm>
#include <utility>

namespace sopa::allocator {

template <unsigned Words>
Colouring<Words>::Colouring(std::vector<Set> available, unsigned colours)
    : m_colours(colours), m_edge(available.size() * colours), m_available(std::move(available))
{
	for (std::vector<uint16_t> &other : m_other)
		other.resize(m_edge.size());
	m_even = std::all_of(m_available.begin(), m_available.end(), [this](const Set &set) { return set == m_available.front(); });
}

template <unsigned Words>
size_t Colouring<Words>::colour(const Edge *edges, size_t count, unsigned first, uint16_t *colours, Quota<Words> *quota)
{
	m_free[0] = m_free[1] = m_available;
	size_t without = 0;
	for (size_t number = 0; number < count; number++) {
		const Edge edge = edges[number];
		const Set both = m_free[0][edge.left] & m_free[1][edge.right];
		const Set usable = quota ? both & quota->allowed(edge) : both;
		const unsigned colour = usable.any() ? usable.around(first) : recolour(edge, quota);
		if (colour == Set::SIZE) {
			colours[number] = NO_COLOUR;
			without++;
			continue;
		}
		if (quota)
			quota->change(edge, Set::SIZE, colour);
		m_free[0][edge.left].remove(colour);
		m_free[1][edge.right].remove(colour);
		m_other[0][at(edge.left, colour)] = edge.right;
		m_other[1][at(edge.right, colour)] = edge.left;
		m_edge[at(edge.left, colour)] = static_cast<uint32_t>(number);
	}
	for (uint32_t vertex = 0; vertex < m_available.size(); vertex++) {
		const Set used = m_available[vertex] - m_free[0][vertex];
		for (unsigned colour = used.next(0); colour < Set::SIZE; colour = used.next(colour + 1))
			colours[m_edge[at(vertex, colour)]] = static_cast<uint16_t>(colour);
	}
	return without;
}

/* Make a colour free at both ends of an edge, and return it; SIZE if there is none. */
template <unsigned Words> unsigned Colouring<Words>::recolour(Edge edge, Quota<Words> *quota)
{
	const Set left = m_free[0][edge.left], right = m_free[1][edge.right];
	/* a colour free at one end becomes free at the other, whose edge of this colour gets one that is free there */
	for (bool side : {true, false}) {
		const Set &here = side ? left : right, &there = side ? right : left;
		const Set taken = (here & m_available[side ? edge.right : edge.left]) - there;
		unsigned chains = 0;
		for (unsigned from = taken.next(0); from < Set::SIZE; from = taken.next(from + 1)) {
			for (unsigned to = there.next(0); to < Set::SIZE && chains < MAX_CHAINS; to = there.next(to + 1), chains++) {
				if (swap(side, edge, from, to, quota))
					return from;
			}
		}
	}
	return Set::SIZE;
}

/* Swap the chain from an end of an edge on, if it has an end and then the edge may have the colour `from`. */
template <unsigned Words> bool Colouring<Words>::swap(bool right, Edge edge, unsigned from, unsigned to, Quota<Words> *quota)
{
	const uint32_t vertex = right ? edge.right : edge.left;
	if (!m_even && !has_end(right, vertex, from, to))
		return false;
	if (quota) {
		change_chain(right, vertex, from, to, false, *quota);
		if (quota->exceeded() || !quota->allowed(edge).has(from)) {
			change_chain(right, vertex, from, to, true, *quota);
			return false;
		}
	}
	swap_chain(right, vertex, from, to);
	return true;
}

/* Tell a quota of the changes of such a chain, or that they are taken back. */
template <unsigned Words>
void Colouring<Words>::change_chain(bool right, uint32_t vertex, unsigned from, unsigned to, bool back, Quota<Words> &quota) const
{
	for (bool side = right;;) {
		const uint16_t other = m_other[side][at(vertex, from)];
		const auto here = static_cast<uint16_t>(vertex);
		const Edge edge = side ? Edge{other, here} : Edge{here, other};
		quota.change(edge, back ? to : from, back ? from : to);
		side = !side;
		vertex = other;
		if (m_free[side][vertex].has(to))
			return;
		std::swap(from, to);
	}
}

/*
 * Whether the edge of colour `from` at a vertex can have the colour `to`, which is free there, the edge in its way `from`, and so on: it cannot
 * if a vertex has not got the colour that it would need. The chain never meets the other end of the edge that is coloured: `from` is free
 * there, and it would arrive by it.
 */
template <unsigned Words> bool Colouring<Words>::has_end(bool right, uint32_t vertex, unsigned from, unsigned to) const
{
	for (bool side = right;;) {
		vertex = m_other[side][at(vertex, from)];
		side = !side;
		if (m_free[side][vertex].has(to))
			return true;
		if (!m_available[vertex].has(to))
			return false;
		std::swap(from, to);
	}
}

/* Swap the colours of such a chain. */
template <unsigned Words> void Colouring<Words>::swap_chain(bool right, uint32_t vertex, unsigned from, unsigned to)
{
	m_free[right][vertex].remove(to);
	m_free[right][vertex].add(from);
	uint32_t next = m_other[right][at(vertex, from)];
	m_other[right][at(vertex, to)] = static_cast<uint16_t>(next);
	if (!right)
		m_edge[at(vertex, to)] = m_edge[at(vertex, from)];
	for (bool side = !right;; side = !side) {
		vertex = next;
		const size_t old = at(vertex, from), fresh = at(vertex, to);
		if (m_free[side][vertex].has(to)) {
			m_free[side][vertex].remove(to);
			m_free[side][vertex].add(from);
			m_other[side][fresh] = m_other[side][old];
			if (!side)
				m_edge[fresh] = m_edge[old];
			return;
		}
		next = m_other[side][fresh];
		std::swap(m_other[side][fresh], m_other[side][old]);
		if (!side)
			std::swap(m_edge[fresh], m_edge[old]);
		std::swap(from, to);
	}
}

template class Colouring<1>;
template class Colouring<4>;
template class Colouring<16>;

} // namespace sopa::allocator
