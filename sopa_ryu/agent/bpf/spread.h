/* Bursts that stay whole: one label for all packets of a burst, which the edge switch's port spreads (`id` carrier). */
#ifndef SOPA_SPREAD_H
#define SOPA_SPREAD_H

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "choose.h"
#include "label.h"
#include "packet.h"

#define ID_SEEN (1 << 16)
#define STANDS 4 /* so many packets with the identification of the one before: it does not count packets */

/*
 * Returns nonzero as long as the flow's packets have different identifications: equal ones would all take one path. The flow's mark has
 * the last one, and how often it stood.
 */
static __always_inline int counts_up(struct flow_state *state, __u16 id)
{
	__u64 mark = state->mark;
	__u32 stood = (mark & (ID_SEEN | 0xffff)) == (ID_SEEN | id) ? (__u32)(mark >> 32) + 1 : 0;

	state->mark = (__u64)(stood < STANDS ? stood : STANDS) << 32 | ID_SEEN | id;
	return stood < STANDS;
}

/* Returns the base, from 0, of the label that spreads this packet or burst, and its identification in `id`; negative if it gets another. */
static __always_inline int spread_base(struct __sk_buff *skb, __u32 l3, const struct flow_key *key, const struct choice *from, __u16 *id)
{
	struct iphdr *ip = header_at(skb, l3, sizeof(*ip));
	struct path_word *path;

	if (!from->spreads || key->proto != IPPROTO_TCP || !from->sprayed || !from->state || from->count < 2)
		return -1;
	if (!ip)
		return -1;
	path = word(from->table, from->first);
	if (!path || leaves(path)) /* the switch's port knows the ways to racks only */
		return -1;
	*id = bpf_ntohs(ip->id);
	if (!counts_up(from->state, *id)) {
		count(IDS_STAND);
		return -1;
	}
	return scaled(from->hash, BASES);
}

#endif
