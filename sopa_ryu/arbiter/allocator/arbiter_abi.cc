/* all that the library shows */
#pragma GCC visibility push(default)
#include "arbiter_abi.h"
#pragma GCC visibility pop

#include "arbiter.h"

#include <cstddef>
#include <exception>
#include <stdexcept>
#include <string>

using sopa::allocator::Arbiter;
using sopa::allocator::Fabric;
using sopa::allocator::Grant;

static_assert(sizeof(sopa_grant) == sizeof(Grant) && offsetof(sopa_grant, destination) == offsetof(Grant, destination) &&
		      offsetof(sopa_grant, slot) == offsetof(Grant, slot) && offsetof(sopa_grant, up1) == offsetof(Grant, up1) &&
		      offsetof(sopa_grant, up2) == offsetof(Grant, up2),
	      "grants are passed on as they are");

struct sopa_arbiter {
	Arbiter arbiter;
};

namespace {

thread_local std::string t_error;

Fabric fabric_of(const sopa_fabric &its)
{
	const size_t racks = size_t{its.pods} * its.edges;
	return {its.pods,
		its.edges,
		its.aggregations,
		its.cores,
		its.hosts,
		{its.host, its.host + racks * its.hosts},
		{its.edge_uplink, its.edge_uplink + racks * its.aggregations},
		{its.aggregation_uplink, its.aggregation_uplink + size_t{its.pods} * its.cores}};
}

/* Call a function; if it throws, keep the reason, and return `failed`. */
template <typename Function, typename Result> Result guarded(Function function, Result failed) noexcept
{
	try {
		return function();
	} catch (const std::exception &error) {
		t_error = error.what();
		return failed;
	}
}

} // namespace

sopa_arbiter *sopa_arbiter_new(const sopa_fabric *fabric, uint32_t order, uint32_t paths, uint32_t batch, uint64_t seed)
{
	using sopa::allocator::Order;
	using sopa::allocator::Paths;
	return guarded(
		[=]() -> sopa_arbiter * {
			if (order > static_cast<uint32_t>(Order::smallest) || paths > static_cast<uint32_t>(Paths::first_fit_ga))
				throw std::invalid_argument("there is no such order or kind of paths");
			return new sopa_arbiter{Arbiter(fabric_of(*fabric), static_cast<Order>(order), static_cast<Paths>(paths), batch, seed)};
		},
		static_cast<sopa_arbiter *>(nullptr));
}

void sopa_arbiter_free(sopa_arbiter *arbiter) { delete arbiter; }

int sopa_arbiter_follow(sopa_arbiter *arbiter, const sopa_fabric *fabric)
{
	return guarded(
		[=] {
			arbiter->arbiter.follow(fabric_of(*fabric));
			return 0;
		},
		-1);
}

int sopa_arbiter_demand(sopa_arbiter *arbiter, const sopa_demand *demands, uint32_t count)
{
	return guarded(
		[=] {
			for (const sopa_demand *each = demands; each != demands + count; each++)
				arbiter->arbiter.demand(each->source, each->destination, each->cells);
			return 0;
		},
		-1);
}

int sopa_arbiter_reserve(sopa_arbiter *arbiter, uint32_t host, uint32_t sending, uint32_t receiving)
{
	return guarded(
		[=] {
			arbiter->arbiter.reserve(host, sending, receiving);
			return 0;
		},
		-1);
}

int64_t sopa_arbiter_batch(sopa_arbiter *arbiter, const sopa_grant **grants)
{
	return guarded(
		[=]() -> int64_t {
			const std::vector<Grant> &granted = arbiter->arbiter.batch();
			*grants = reinterpret_cast<const sopa_grant *>(granted.data());
			return static_cast<int64_t>(granted.size());
		},
		int64_t{-1});
}

void sopa_arbiter_statistics(const sopa_arbiter *arbiter, uint64_t out[3])
{
	const sopa::allocator::Statistics its = arbiter->arbiter.statistics();
	out[0] = its.slots;
	out[1] = its.granted;
	out[2] = its.unplaced;
}

const char *sopa_arbiter_error(void) { return t_error.c_str(); }
