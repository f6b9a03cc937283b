/*
 * Edge colouring of bipartite multigraphs: each vertex has a set of colours that it may give to its edges, each to one. Where no colour is
 * free at both ends of an edge, those of a chain of edges are swapped (Kempe chains: Koenig's theorem; Bondy and Murty, Graph Theory with
 * Applications, section 6.1). If all vertices have the same set, and no more edges than it has colours, every edge gets one.
 */
#ifndef SOPA_ALLOCATOR_COLOURING_H
#define SOPA_ALLOCATOR_COLOURING_H

#include "bits.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sopa::allocator {

struct Edge {
	uint16_t left, right;
};

constexpr uint16_t NO_COLOUR = 0xffff;

/* Limits of how many edges of some colours groups of vertices may have. */
template <unsigned Words> class Quota {
public:
	virtual ~Quota() = default;

	/* The colours that an edge without one may have. */
	virtual Bits<Words> allowed(Edge edge) const = 0;

	/* An edge gets a colour in place of another one; SIZE stands for none. */
	virtual void change(Edge edge, unsigned from, unsigned to) = 0;

	/* Whether changes have gone over a limit, and none has gone back. */
	virtual bool exceeded() const = 0;
};

template <unsigned Words> class Colouring {
public:
	using Set = Bits<Words>;

	/* The colours, below `colours`, that each left vertex and the right vertex of the same number have. */
	Colouring(std::vector<Set> available, unsigned colours);

	/*
	 * Colour `count` edges in their order. The search for a free colour begins with `first`. An edge for which none is found gets NO_COLOUR.
	 * Returns the number of those.
	 */
	size_t colour(const Edge *edges, size_t count, unsigned first, uint16_t *colours, Quota<Words> *quota = nullptr);

private:
	static constexpr unsigned MAX_CHAINS = 8; /* tried for one edge: where sets differ, a chain can be a dead end */

	unsigned recolour(Edge edge, Quota<Words> *quota);
	bool swap(bool right, Edge edge, unsigned from, unsigned to, Quota<Words> *quota);
	void change_chain(bool right, uint32_t vertex, unsigned from, unsigned to, bool back, Quota<Words> &quota) const;
	bool has_end(bool right, uint32_t vertex, unsigned from, unsigned to) const;
	void swap_chain(bool right, uint32_t vertex, unsigned from, unsigned to);

	size_t at(uint32_t vertex, unsigned colour) const { return vertex * m_colours + colour; }

	size_t m_colours;
	std::vector<Set> m_free[2]; /* of left and right vertices */
	/* By `at` for each vertex and colour that is not free there: the other end of the edge, and of left vertices the number of the edge. */
	std::vector<uint16_t> m_other[2];
	std::vector<uint32_t> m_edge;
	std::vector<Set> m_available;
	bool m_even = true; /* all vertices have the same colours */
};

extern template class Colouring<1>;
extern template class Colouring<4>;
extern template class Colouring<16>;

} // namespace sopa::allocator

#endif
