/* The state of connections, and the hosts that have any: what both directions need. */
#ifndef SOPA_MCS_CONNECTIONS_H
#define SOPA_MCS_CONNECTIONS_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
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

static __always_inline int within_share(__u32 host)
{
	__u32 *begun = word(&mcs_begun, (host * 2654435761U) >> 22);

	return begun && *begun < SHARE && __sync_fetch_and_add(begun, 1) < SHARE;
}

/* A socket that listens is none of this connection. */
static __always_inline int has_tcp(struct __sk_buff *skb, const struct connection_key *key)
{
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *found;
	int has;

	if (key->proto & IPV6_KEY) {
		if (bpf_skb_load_bytes(skb, ETH_HLEN + offsetof(struct ipv6hdr, saddr), tuple.ipv6.saddr, 2 * sizeof(tuple.ipv6.saddr)))
			return 0;
		tuple.ipv6.sport = bpf_htons(key->ports);
		tuple.ipv6.dport = bpf_htons(key->ports >> 16);
		found = bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv6), BPF_F_CURRENT_NETNS, 0);
	} else {
		tuple.ipv4.saddr = bpf_htonl(key->remote);
		tuple.ipv4.daddr = bpf_htonl(key->local);
		tuple.ipv4.sport = bpf_htons(key->ports);
		tuple.ipv4.dport = bpf_htons(key->ports >> 16);
		found = bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
	}
	if (!found)
		return 0;
	has = found->state != BPF_TCP_LISTEN;
	bpf_sk_release(found);
	return has;
}

/*
 * Returns the connection's state; null if there is no room, or if a packet that ends it is the first that is seen. `received` is a packet
 * that a far host has sent, null for one of this host's TCP.
 */
static __always_inline struct mcs_connection *connection(
	struct __sk_buff *received, const struct parsed *of, __u32 channels, __u32 seq)
{
	struct mcs_connection *its = bpf_map_lookup_elem(&mcs_connections, &of->key), fresh;

	if (its || of->segment.fin || of->rst)
		return its;
	if (received && !within_share(of->key.remote) && !has_tcp(received, &of->key)) {
		count(NO_CONNECTION);
		return (void *)0;
	}
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
