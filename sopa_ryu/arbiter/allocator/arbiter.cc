#include "arbiter.h"

#include "bits.h"
#include "demands.h"
#include "layout.h"
#include "matching.h"
#include "paths.h"

#include <array>
#include <stdexcept>
#include <string>

namespace sopa::allocator {

struct Arbiter::State {
	State(const Fabric &fabric, Order order, Paths kind, unsigned slots, uint64_t seed);

	void follow(const Fabric &fabric);
	void check(uint32_t host) const;
	void expand(const std::vector<Match> &matches);
	void find_paths();
	size_t put_back(size_t from, size_t to, size_t kept);

	Layout layout;
	Paths kind;
	unsigned slots;
	Draw draw;
	Demands demands;
	std::unique_ptr<Matching> matching;
	std::unique_ptr<PathFinder> paths;
	std::vector<Grant> grants;
	std::array<size_t, MAX_BATCH + 1> first; /* of each slot in `grants`; at last their number */
	Statistics statistics{};
};

Arbiter::State::State(const Fabric &fabric, Order order, Paths kind, unsigned slots, uint64_t seed)
    : layout(fabric), kind(kind), slots(slots), draw(seed)
{
	if (!slots || slots > MAX_BATCH)
		throw std::invalid_argument("a batch has 1 to " + std::to_string(MAX_BATCH) + " slots, not " + std::to_string(slots));
	matching = Matching::make(layout, order, slots);
	follow(fabric);
}

void Arbiter::State::follow(const Fabric &fabric)
{
	matching->follow(fabric);
	paths = PathFinder::make(layout, fabric, kind, draw(UINT32_MAX));
	demands.unpark();
}

void Arbiter::State::check(uint32_t host) const
{
	if (host >= layout.hosts)
		throw std::invalid_argument("there are " + std::to_string(layout.hosts) + " hosts, and no number " + std::to_string(host));
}

/* Write the cells of each slot in a row. */
void Arbiter::State::expand(const std::vector<Match> &matches)
{
	first.fill(0);
	for (const Match &match : matches) {
		for (uint64_t rest = match.slots; rest; rest &= rest - 1)
			first[lowest(rest) + 1]++;
	}
	for (unsigned slot = 0; slot < slots; slot++)
		first[slot + 1] += first[slot];
	std::array<size_t, MAX_BATCH + 1> next = first;
	grants.resize(first[slots]);
	for (const Match &match : matches) {
		for (uint64_t rest = match.slots; rest; rest &= rest - 1) {
			const unsigned slot = lowest(rest);
			grants[next[slot]++] = {match.source, match.destination, static_cast<uint16_t>(slot), NO_HOP, NO_HOP};
		}
	}
}

void Arbiter::State::find_paths()
{
	size_t kept = 0;
	for (unsigned slot = 0; slot < slots; slot++) {
		const size_t from = first[slot], to = first[slot + 1];
		const size_t without = paths->assign(grants.data() + from, to - from);
		if (without || kept != from)
			kept = put_back(from, to, kept);
		else
			kept = to;
		statistics.unplaced += without;
	}
	grants.resize(kept);
	statistics.granted += kept;
}

/* Give cells without a path back to the demands, and move the others of the slot forwards. Returns where these end. */
size_t Arbiter::State::put_back(size_t from, size_t to, size_t kept)
{
	for (size_t cell = from; cell < to; cell++) {
		const Grant &grant = grants[cell];
		if (grant.up1 == NO_HOP && layout.rack_of[grant.source] != layout.rack_of[grant.destination])
			demands.give_back(grant.source, grant.destination);
		else
			grants[kept++] = grant;
	}
	return kept;
}

Arbiter::Arbiter(const Fabric &fabric, Order order, Paths paths, unsigned batch, uint64_t seed)
    : state(std::make_unique<State>(fabric, order, paths, batch, seed))
{
}

Arbiter::~Arbiter() = default;

void Arbiter::follow(const Fabric &fabric)
{
	if (!state->layout.same_shape(fabric))
		throw std::invalid_argument("the fabric has other numbers of switches or hosts");
	Layout{fabric}; /* its vectors */
	state->follow(fabric);
}

void Arbiter::demand(uint32_t source, uint32_t destination, uint32_t cells)
{
	state->check(source);
	state->check(destination);
	if (source == destination)
		throw std::invalid_argument("host " + std::to_string(source) + " has no slots to itself");
	state->demands.set(source, destination, cells);
}

void Arbiter::reserve(uint32_t host, unsigned sending, unsigned receiving)
{
	state->check(host);
	state->matching->reserve(host, sending, receiving);
}

const std::vector<Grant> &Arbiter::batch()
{
	state->expand(state->matching->match(state->demands));
	state->find_paths();
	state->statistics.slots += state->slots;
	return state->grants;
}

Statistics Arbiter::statistics() const { return state->statistics; }

} // namespace sopa::allocator
