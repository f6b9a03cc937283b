/* The uplinks of some switches as colours: one that carries several cells a slot is several colours. */
#ifndef SOPA_ALLOCATOR_PALETTE_H
#define SOPA_ALLOCATOR_PALETTE_H

#include "bits.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sopa::allocator {

/* Capacities of the uplinks of switches, in cells a slot. */
struct Uplinks {
	const uint8_t *capacity; /* [switch * stride + uplink] */
	size_t switches, stride;
	unsigned uplinks;
	uint32_t most; /* that a switch can use of one uplink */

	/* The colours that an uplink is. */
	unsigned colours_of(unsigned uplink) const
	{
		uint32_t widest = 0;
		for (size_t each = 0; each < switches; each++)
			widest = std::max<uint32_t>(widest, capacity[each * stride + uplink]);
		return std::min(widest, most);
	}

	unsigned colours() const
	{
		unsigned sum = 0;
		for (unsigned uplink = 0; uplink < uplinks; uplink++)
			sum += colours_of(uplink);
		return sum;
	}
};

template <unsigned Words> struct Palette {
	explicit Palette(const Uplinks &its) : available(its.switches)
	{
		for (unsigned uplink = 0; uplink < its.uplinks; uplink++) {
			for (unsigned copy = 0; copy < its.colours_of(uplink); copy++) {
				for (size_t each = 0; each < its.switches; each++) {
					if (copy < its.capacity[each * its.stride + uplink])
						available[each].add(static_cast<unsigned>(uplink_of.size()));
				}
				uplink_of.push_back(static_cast<uint8_t>(uplink));
			}
		}
	}

	unsigned colours() const { return static_cast<unsigned>(uplink_of.size()); }

	std::vector<uint8_t> uplink_of;     /* [colour] */
	std::vector<Bits<Words>> available; /* [switch] */
};

} // namespace sopa::allocator

#endif
