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

/* Returns nonzero if an acknowledgement says that packets behind a missing one have come, and none has come twice (RFC 2883). */
static __always_inline int is_plain_sack(struct __sk_buff *skb, __u32 l4, __u32 header, __u32 ack)
{
	__u32 blocks, at = l4 + find_sack(skb, l4, header, &blocks) + 4;
	__u32 first = read_word(skb, at), behind = read_word(skb, at + 4);

	if (!blocks || (__s32)(first - ack) < 0)
		return 0;
	if (blocks == 1)
		return 1;
	return (__s32)(first - read_word(skb, at + 8)) < 0 || (__s32)(behind - read_word(skb, at + 12)) > 0;
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
	if (!is_plain_sack(skb, l4, end - l4, ack))
		return 0;
	state->mark |= 1ULL << ACK_LEFT_OUT;
	return 1;
}

#endif
