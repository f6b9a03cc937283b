/*
 * Leave out acknowledgements that say little (RFC 3449, section 5.2.2). On sprayed paths packets overtake each other, and a receiver answers
 * each of them at once, where it answers every second one of packets in order: at full rate acknowledgements take 2% more of a link.
 */
#ifndef SOPA_ACK_H
#define SOPA_ACK_H

#include <linux/bpf.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "choose.h"
#include "maps.h"
#include "packet.h"

/* So many acknowledgements of a connection are all sent: a loss is to be seen before few packets have followed it. */
#define ACK_FIRST 64

/* In `flow_state.mark`, above the acknowledgement number, in bits. */
#define ACK_WINDOW 32
#define ACK_LEFT_OUT 48 /* the last one */
#define ACK_COUNT 49 /* of all, up to ACK_FIRST */

#define MAX_TCP_HEADER 60
#define MAX_TCP_OPTIONS 8
#define SACK_OPTION 5

/* Returns nonzero if an option at that offset of the frame says that packets behind a missing one have come, and none has come twice (RFC 2883). */
static __always_inline int is_plain_sack(struct __sk_buff *skb, __u32 offset, __u32 length, __u32 ack)
{
	__be32 edges[4] = {};

	if (length < 10 || bpf_skb_load_bytes(skb, offset + 2, edges, 8))
		return 0;
	if ((__s32)(bpf_ntohl(edges[0]) - ack) < 0)
		return 0;
	if (length < 18)
		return 1;
	if (bpf_skb_load_bytes(skb, offset + 10, edges + 2, 8))
		return 0;
	return (__s32)(bpf_ntohl(edges[0]) - bpf_ntohl(edges[2])) < 0 || (__s32)(bpf_ntohl(edges[1]) - bpf_ntohl(edges[3])) > 0;
}

/* Returns nonzero if a segment's options, between two offsets of the frame, have a plain SACK. Not inlined, as `is_sprayed`. */
__attribute__((noinline)) int has_plain_sack(struct __sk_buff *skb, __u32 offset, __u32 end, __u32 ack)
{
	for (int i = 0; i < MAX_TCP_OPTIONS; i++) {
		__u8 its[2];

		if (offset + 2 > end || bpf_skb_load_bytes(skb, offset, its, sizeof(its)))
			return 0;
		if (its[0] == SACK_OPTION)
			return is_plain_sack(skb, offset, its[1], ack);
		if (!its[0])
			return 0;
		offset += its[0] == 1 ? 1 : its[1] < 2 ? 2 : its[1];
	}
	return 0;
}

/*
 * Returns nonzero for an acknowledgement that is to be left out: it repeats the number of the last one, says only which packets have come
 * behind a missing one, which the next will say as well, and opens no small window. The one before was not left out.
 */
static __always_inline int is_spare_ack(struct __sk_buff *skb, __u32 l4, const struct flow_key *key, const struct choice *from)
{
	struct flow_state *state = from->state;
	__u32 ack, end, window;
	struct tcphdr *tcp;
	__u64 last, acks;

	if (skb->len > l4 + MAX_TCP_HEADER) /* data, at the least cost */
		return 0;
	if (!state || !from->sprayed || from->policy == FLOWLET || from->policy == FLOWCELL || protocol_of(key) != IPPROTO_TCP)
		return 0;
	tcp = header_at(skb, l4, sizeof(*tcp));
	if (!tcp)
		return 0;
	end = l4 + tcp->doff * 4;
	if (skb->len > end || !tcp->ack || tcp->syn || tcp->fin || tcp->rst || tcp->urg || tcp->ece || tcp->cwr)
		return 0;
	ack = bpf_ntohl(tcp->ack_seq);
	window = bpf_ntohs(tcp->window);
	last = state->mark;
	acks = last >> ACK_COUNT;
	acks += acks < ACK_FIRST;
	state->mark = acks << ACK_COUNT | (__u64)window << ACK_WINDOW | ack;
	if (acks < ACK_FIRST || last >> ACK_LEFT_OUT & 1 || (__u32)last != ack || window > 2 * (last >> ACK_WINDOW & 0xffff))
		return 0;
	if (!has_plain_sack(skb, l4 + sizeof(*tcp), end, ack))
		return 0;
	state->mark |= 1ULL << ACK_LEFT_OUT;
	return 1;
}

#endif
