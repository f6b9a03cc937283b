/* Which racks have a path between them. */
#ifndef SOPA_ALLOCATOR_REACH_H
#define SOPA_ALLOCATOR_REACH_H

#include "bits.h"
#include "layout.h"

#include <vector>

namespace sopa::allocator {

class Reach {
public:
	explicit Reach(const Layout &layout);

	void follow(const Fabric &fabric);

	/* Whether every rack reaches all others by all uplinks. */
	bool whole() const { return m_whole; }

	bool reachable(uint32_t from, uint32_t to) const
	{
		if (m_whole)
			return true;
		const uint32_t source = m_layout.pod_of[from], destination = m_layout.pod_of[to];
		const Set between = m_uplinks[from] & m_uplinks[to];
		return (source == destination ? between : between & m_between[source * m_layout.pods + destination]).any();
	}

private:
	using Set = Bits<4>; /* of aggregation switches: up1 */

	const Layout &m_layout;
	bool m_whole = true;
	std::vector<Set> m_uplinks; /* [rack] */
	std::vector<Set> m_between; /* [pod * pods + pod] */
};

} // namespace sopa::allocator

#endif
