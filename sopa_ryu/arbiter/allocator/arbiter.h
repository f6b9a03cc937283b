/*
 * The arbiter's library: timeslots and paths for packets or cells, so that in no slot a host sends or receives more than its link carries,
 * and no link carries more than it can (Li et al., Congestion-free routing strategy in software defined data center networks, 2015,
 * sections 3 and 4). It is used by the service (arbiter_abi.h) and by the simulator, which has a Fabric of its own in namespace sopa: hence
 * the namespace of its own.
 */
#ifndef SOPA_ARBITER_H
#define SOPA_ARBITER_H

#include <cstdint>
#include <memory>
#include <vector>

namespace sopa::allocator {

/* A Clos fabric, its links' capacities in cells a slot; 0 for a link that is absent, failed or drained. */
struct Fabric {
	uint32_t pods, edges, aggregations, cores, hosts; /* as of Shape in topologies/identity.py: of a pod, of a pod, in all, of an edge switch */
	std::vector<uint8_t> host;               /* [host], in the order of addresses */
	std::vector<uint8_t> edge_uplink;        /* [(pod * edges + edge) * aggregations + up1] */
	std::vector<uint8_t> aggregation_uplink; /* [(pod * aggregations + up1) * cores of a group + up2] */
};

/* In which order demands get slots: of the smallest and the largest in turn, the same by batch, or the smallest first. */
enum class Order { min_max_min, alternating, smallest };

/* How paths are found: without any conflict, or by a bin packing as in section 4 of the paper (packing.h). */
enum class Paths { colouring, next_fit_ga, next_fit, first_fit, first_fit_ga };

constexpr uint8_t NO_HOP = 0xff;
constexpr unsigned MAX_BATCH = 64;

/* A cell that may be sent in a slot. */
struct Grant {
	uint32_t source, destination;
	uint16_t slot; /* of the batch, from 0 on */
	uint8_t up1, up2;
};

struct Statistics {
	uint64_t slots, granted;
	uint64_t unplaced; /* allocated, but without a path: they wait */
};

class Arbiter {
public:
	/* Throws std::invalid_argument if the fabric's vectors do not fit its numbers, or the batch is not 1 to MAX_BATCH slots. */
	Arbiter(const Fabric &fabric, Order order, Paths paths, unsigned batch, uint64_t seed);
	~Arbiter();

	/* Go on with other capacities of the same fabric. Throws std::invalid_argument for another one. */
	void follow(const Fabric &fabric);

	/* Set what is left to send from one host to another, in cells; 0 removes it. What was granted since is the caller's to subtract. */
	void demand(uint32_t source, uint32_t destination, uint32_t cells);

	/* Leave so many cells of a host's link free in the next batch, for traffic that asks for no slots. */
	void reserve(uint32_t host, unsigned sending, unsigned receiving);

	/* Allocate the next batch; what is granted is taken off the demands. Valid until the next call. */
	const std::vector<Grant> &batch();

	Statistics statistics() const;

private:
	struct State;
	std::unique_ptr<State> state;
};

} // namespace sopa::allocator

#endif
