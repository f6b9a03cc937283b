/* The arbiter's library for other languages: arbiter.h with plain types. Functions that can fail return negative or null; sopa_arbiter_error says why. */
#ifndef SOPA_ARBITER_ABI_H
#define SOPA_ARBITER_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sopa_fabric {
	uint32_t pods, edges, aggregations, cores, hosts;
	const uint8_t *host, *edge_uplink, *aggregation_uplink; /* as in arbiter.h */
};

struct sopa_grant {
	uint32_t source, destination;
	uint16_t slot;
	uint8_t up1, up2;
};

struct sopa_demand {
	uint32_t source, destination, cells;
};

struct sopa_arbiter;

struct sopa_arbiter *sopa_arbiter_new(const struct sopa_fabric *fabric, uint32_t order, uint32_t paths, uint32_t batch, uint64_t seed);
void sopa_arbiter_free(struct sopa_arbiter *arbiter);
int sopa_arbiter_follow(struct sopa_arbiter *arbiter, const struct sopa_fabric *fabric);
int sopa_arbiter_demand(struct sopa_arbiter *arbiter, const struct sopa_demand *demands, uint32_t count);
int sopa_arbiter_reserve(struct sopa_arbiter *arbiter, uint32_t host, uint32_t sending, uint32_t receiving);
/* Returns the number of grants, and where they are until the next call. */
int64_t sopa_arbiter_batch(struct sopa_arbiter *arbiter, const struct sopa_grant **grants);
void sopa_arbiter_statistics(const struct sopa_arbiter *arbiter, uint64_t out[3]); /* slots, granted, unplaced */
const char *sopa_arbiter_error(void); /* of this thread's last call that failed */

#ifdef __cplusplus
}
#endif

#endif
