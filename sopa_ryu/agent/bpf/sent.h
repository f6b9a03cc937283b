/*
 * What a host's own packets tell about paths: which label carried which bytes of a TCP connection, so that a retransmission counts
 * against the path that lost them. docs/probes.md; the reader is in kernel/own_traffic.py.
 */
#ifndef SOPA_SENT_H
#define SOPA_SENT_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "busy.h"
#include "choose.h"
#include "label.h"
#include "maps.h"
#include "packet.h"
#include "skip.h"

/*
 * A ring has a flow's last segments, in one word each, so that a flow that moves to another processor leaves no half of one. Flows that
 * meet in a ring take it from each other: then one's retransmissions are not found, and none is counted against a wrong path.
 */
#define RINGS 512
#define SEGMENTS 128
#define MAX_WINDOW (1U << 30) /* RFC 7323, section 2.3: what is farther away is of another connection */

#define WAS_SPREAD 1 /* in the owner: by its packets' identifications */

struct sent_ring {
	__u32 owner; /* the flow's hash, but for the last bit, which the ring's place has */
	__u32 next; /* behind the highest sequence number sent */
	__u64 noted; /* segments so far; 0: nobody's */
	__u64 segments[SEGMENTS]; /* first sequence number in 32 bits, bytes in 16, up1 and up2 in 8 each; WAS_SPREAD: the identification in 16 */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RINGS);
	__type(key, __u32);
	__type(value, struct sent_ring);
} sent SEC(".maps");

/* A segment that was sent again: its label the time before. The agent reads them ten times a second; what has no room until then is not counted. */
struct sent_again {
	__u32 daddr; /* of the path: the destination, or the gateway to it; host order */
	__u8 up1;
	__u8 up2;
	__u16 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16384);
} again SEC(".maps");

/* A segment that is to be noted, and what its path was chosen from. */
struct segment {
	__u32 l4;
	__u32 hash;
	__u32 index;
	__u32 first;
	__u32 count;
	__u32 daddr;
	__u32 mark; /* the label, or of a burst that is spread its first identification */
	__u32 spread; /* 0, or WAS_SPREAD */
};

/* Returns nonzero for a retransmission that a timeout has made. */
static __always_inline int is_timed_out(struct __sk_buff *skb)
{
	struct bpf_sock *socket = skb->sk;
	struct bpf_tcp_sock *tcp = socket ? bpf_tcp_sock(socket) : (void *)0;

	return tcp && tcp->icsk_retransmits;
}

/*
 * Counts a retransmission of the byte with this sequence number against the label that carried it last. Of a burst that was spread it
 * is that of the packet with this byte, whose packets had `bytes` each.
 */
static __always_inline void count_again(
	const struct sent_ring *ring, __u32 seq, const struct segment *of, __u32 bytes, int timed_out)
{
	for (__u32 back = 1; back <= SEGMENTS; back++) {
		struct sent_again record = { of->daddr, 0, 0, 0 };
		__u64 segment;

		if (back > ring->noted)
			break;
		segment = ring->segments[(ring->noted - back) & (SEGMENTS - 1)];
		if (seq - (__u32)(segment >> 32) >= (segment >> 16 & 0xffff))
			continue;
		record.up1 = segment >> 8;
		record.up2 = segment;
		if (ring->owner & WAS_SPREAD) {
			__u16 id = segment + (seq - (__u32)(segment >> 32)) / bytes;
			__u32 base = scaled(of->hash, BASES);
			void *table = word(&path_tables, of->index);
			struct path_word *path = table ? word(table, of->first + packet_number(base, id) % of->count) : (void *)0;

			if (!path)
				break;
			record.up1 = path->up1;
			record.up2 = path->up2;
		} else {
			__u32 all = ring->noted < SEGMENTS ? ring->noted : SEGMENTS;
			__u64 at = ring->noted - 1 - scaled(mix64(seq + ring->noted) >> 32, all);

			lose_turns(of->daddr, segment, ring->segments[at & (SEGMENTS - 1)], timed_out);
		}
		bpf_ringbuf_output(&again, &record, sizeof(record), BPF_RB_NO_WAKEUP);
		break;
	}
}

/* Not inlined, as `is_sprayed`; returns 0. */
__attribute__((noinline)) int note_segment(struct __sk_buff *skb, const struct segment *of)
{
	__u32 headers, bytes, seq, behind, hash;
	struct sent_ring *ring;
	struct tcphdr *tcp;

	if (!of)
		return 0;
	hash = (of->hash & ~WAS_SPREAD) | of->spread;
	tcp = header_at(skb, of->l4, sizeof(*tcp));
	if (!tcp)
		return 0;
	headers = of->l4 + tcp->doff * 4;
	bytes = skb->len - headers; /* not the packet's own length, which is 0 of a burst beyond 64 KB */
	if ((__s32)bytes <= 0 && !tcp->syn)
		return 0;
	ring = word(&sent, of->hash & (RINGS - 1));
	if (!ring)
		return 0;
	seq = bpf_ntohl(tcp->seq);
	if (tcp->syn) { /* another connection between the same ports */
		ring->noted = 0;
		return 0;
	}
	behind = ring->next - seq;
	if (ring->owner != hash || !ring->noted || (behind > MAX_WINDOW && behind < -MAX_WINDOW)) {
		ring->owner = hash;
		ring->noted = 0;
		ring->next = seq;
	} else if ((__s32)behind > 0) {
		count_again(ring, seq, of, skb->gso_size ? skb->gso_size : bytes ? bytes : 1, is_timed_out(skb));
	}
	if ((__s32)(seq + bytes - ring->next) > 0)
		ring->next = seq + bytes;
	ring->segments[ring->noted & (SEGMENTS - 1)] =
		(__u64)seq << 32 | (bytes < 0xffff ? bytes : 0xffff) << 16 | (__u16)of->mark;
	ring->noted++;
	return 0;
}

static __always_inline void note_of(struct __sk_buff *skb, __u32 l4, const struct choice *from, __u32 daddr, __u32 mark, __u32 spread)
{
	struct segment its = { l4, from->hash, from->index, from->first, from->count, daddr, mark, spread };

	note_segment(skb, &its);
}

/* Notes a packet that gets a label, before it is written. Where there was no choice of a path, there is none to leave. */
static __always_inline void note_sent(struct __sk_buff *skb, __u32 l4, const struct flow_key *key, const struct choice *from,
				      const struct path_word *path)
{
	__u32 daddr = end_of(path, key->daddr);

	if (from->count < 2)
		return;
	note_busy(daddr);
	if (protocol_of(key) == IPPROTO_TCP && from->sprayed) /* of a flow with one path all losses are on it, bad or not */
		note_of(skb, l4, from, daddr, path->up1 << 8 | path->up2, 0);
}

/* Notes a packet or burst that is to be spread. */
static __always_inline void note_spread(struct __sk_buff *skb, __u32 l4, const struct flow_key *key, const struct choice *from, __u16 id)
{
	note_busy(key->daddr);
	note_of(skb, l4, from, key->daddr, id, WAS_SPREAD);
}

#endif
