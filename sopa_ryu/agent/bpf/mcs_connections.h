/* The state of connections, and the hosts that have any: what both directions need. */
#ifndef SOPA_MCS_CONNECTIONS_H
#define SOPA_MCS_CONNECTIONS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "choose.h"
#include "maps.h"
#include "mcs.h"
#include "mcs_algorithms.h"
#include "mcs_packet.h"
#include "mcs_scales.h"

static __always_inline struct mcs_settings *settings(void)
{
	return word(&mcs_settings, 0);
}

static __always_inline int runs_mcs(__u32 host)
{
	return bpf_map_lookup_elem(&mcs_hosts, &host) != (void *)0;
}

static __always_inline int is_scattered_to(__u32 host)
{
	__u32 *use = bpf_map_lookup_elem(&mcs_hosts, &host);

	return use && *use == SCATTERS;
}

/* Returns the connection's state; null if there is no room, or if a packet that ends it is the first that is seen. */
static __always_inline struct mcs_connection *connection(const struct parsed *of, __u32 channels, __u32 seq)
{
	struct mcs_connection *its = bpf_map_lookup_elem(&mcs_connections, &of->key), fresh;

	if (its || of->segment.fin || of->rst)
		return its;
	begin(&fresh, channels, seq, remote_scale(&of->key), bpf_ktime_get_ns());
	/* Another CPU may insert the same connection in between: the first wins. */
	bpf_map_update_elem(&mcs_connections, &of->key, &fresh, BPF_NOEXIST);
	its = bpf_map_lookup_elem(&mcs_connections, &of->key);
	if (!its)
		count(NO_CONNECTION);
	return its;
}

static __always_inline int is_over(const struct mcs_connection *its, const struct segment *packet)
{
	return its->flags & CLOSED_OUT && its->flags & CLOSED_IN && packet->has_ack && !packet->fin;
}

#endif
