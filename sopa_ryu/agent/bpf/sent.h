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
 * A ring has a flow's last segments, in one word each, so that a flow that moves to another processor leaves no half of one: the first
 * sequence number in 32 bits, NUMBERED, the length in 15, up1 and up2 in 8 each. Flows that meet in a ring take it from each other: then
 * one's retransmissions are not found, and none is counted against a wrong path.
 */
#define RINGS 512
#define SEGMENTS 128
#define MAX_WINDOW (1U << 30) /* RFC 7323, section 2.3: what is farther away is of another connection */

/*
 * A burst: its length is in units of 16 bytes. In place of hops it has a number: the path of its packet i is the candidate of that number
 * and i, as of a packet that is spread (label.h).
 */
#define NUMBERED (1U << 31)
#define UNIT_BITS 4
#define MAX_LENGTH 0x7fff

struct sent_ring {
	__u32 owner; /* the flow's hash */
	__u32 next; /* behind the highest sequence number sent */
	__u32 in_force; /* `turn` when the last NUMBERED one was noted */
	__u32 since; /* `noted` when the first one was under that: numbers before are of other candidates */
	__u64 noted; /* segments so far; 0: nobody's */
	__u64 segments[SEGMENTS];
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
	__u32 in_force;
	__u32 first;
	__u32 count;
	__u32 daddr;
	__u32 mark; /* the hops, or the number of a burst's first packet */
	__u32 numbered; /* 0, or NUMBERED */
};

static __always_inline __u32 length_of(__u64 segment)
{
	__u32 length = segment >> 16 & MAX_LENGTH;

	return segment & NUMBERED ? length << UNIT_BITS : length;
}

static __always_inline struct bpf_tcp_sock *connection_of(struct __sk_buff *skb)
{
	struct bpf_sock *socket = skb->sk;

	return socket ? bpf_tcp_sock(socket) : (void *)0;
}

/* Returns nonzero for a retransmission that a timeout has made. */
static __always_inline int is_timed_out(struct __sk_buff *skb)
{
	struct bpf_tcp_sock *tcp = connection_of(skb);

	return tcp && tcp->icsk_retransmits;
}

/* The bytes of a whole packet of the connection; the last one of a burst may have less. */
static __always_inline __u32 whole_packet(struct __sk_buff *skb, __u32 bytes)
{
	struct bpf_tcp_sock *tcp = connection_of(skb);

	if (skb->gso_size)
		return skb->gso_size;
	return tcp && tcp->mss_cache ? tcp->mss_cache : bytes ?: 1;
}

/*
 * Counts a retransmission of the byte with this sequence number against the label that carried it last. Of a burst it is that of the
 * packet with this byte; its packets had `bytes` each.
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
		if (seq - (__u32)(segment >> 32) >= length_of(segment))
			continue;
		record.up1 = segment >> 8;
		record.up2 = segment;
		if (segment & NUMBERED) {
			if (ring->in_force != of->in_force || (__s32)((__u32)(ring->noted - back) - ring->since) < 0)
				break;

			__u16 id = segment + (seq - (__u32)(segment >> 32)) / bytes;
			__u32 base = scaled(of->hash, BASES);
			void *table = word(&path_tables, of->in_force & 1);
			struct path_word *path = table ? word(table, of->first + packet_number(base, id) % of->count) : (void *)0;

			if (!path)
				break;
			record.up1 = path->up1;
			record.up2 = path->up2;
		} else {
			__u32 all = ring->noted < SEGMENTS ? ring->noted : SEGMENTS;
			__u64 at = ring->noted - 1 - scaled(mix64(seq + ring->noted) >> 32, all);
			__u64 drawn = ring->segments[at & (SEGMENTS - 1)];

			if (!(drawn & NUMBERED))
				lose_turns(of->daddr, segment, drawn, timed_out);
		}
		bpf_ringbuf_output(&again, &record, sizeof(record), BPF_RB_NO_WAKEUP);
		break;
	}
}

/* Not inlined, as `is_sprayed`; returns 0. */
__attribute__((noinline)) int note_segment(struct __sk_buff *skb, const struct segment *of)
{
	__u32 headers, bytes, seq, behind, length;
	struct sent_ring *ring;
	struct tcphdr *tcp;

	if (!of)
		return 0;
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
	if (ring->owner != of->hash || !ring->noted || (behind > MAX_WINDOW && behind < -MAX_WINDOW)) {
		ring->owner = of->hash;
		ring->noted = 0;
		ring->in_force = 0;
		ring->next = seq;
	} else if ((__s32)behind > 0) {
		count_again(ring, seq, of, whole_packet(skb, bytes), is_timed_out(skb));
	}
	if ((__s32)(seq + bytes - ring->next) > 0)
		ring->next = seq + bytes;
	if (of->numbered && ring->in_force != of->in_force) {
		ring->in_force = of->in_force;
		ring->since = ring->noted;
	}
	length = of->numbered ? (bytes + (1 << UNIT_BITS) - 1) >> UNIT_BITS : bytes;
	ring->segments[ring->noted & (SEGMENTS - 1)] =
		(__u64)seq << 32 | of->numbered | (length < MAX_LENGTH ? length : MAX_LENGTH) << 16 | (__u16)of->mark;
	ring->noted++;
	return 0;
}

/* Notes a packet that gets a label, before it is written. Where there was no choice of a path, there is none to leave. */
static __always_inline void note_sent(struct __sk_buff *skb, __u32 l4, const struct flow_key *key, const struct choice *from,
				      const struct path_word *path)
{
	__u32 daddr = end_of(path, key->daddr);

	if (from->count < 2)
		return;
	note_busy(daddr);
	if (protocol_of(key) == IPPROTO_TCP && from->sprayed) { /* of a flow with one path all losses are on it, bad or not */
		struct segment its = {
			l4, from->hash, from->in_force, from->first, from->count, daddr, path->up1 << 8 | path->up2, 0,
		};

		note_segment(skb, &its);
	}
}

/* Notes a packet or burst whose packets take the candidates of these numbers; `daddr` is of the last rack. */
static __always_inline void note_numbered(struct __sk_buff *skb, __u32 l4, const struct choice *from, __u32 daddr, __u16 number)
{
	struct segment its = { l4, from->hash, from->in_force, from->first, from->count, daddr, number, NUMBERED };

	note_busy(daddr);
	note_segment(skb, &its);
}

/* Returns nonzero for a packet or burst that begins with what was sent before. */
static __always_inline int is_sent_again(struct __sk_buff *skb, __u32 l4, const struct choice *from)
{
	struct sent_ring *ring = word(&sent, from->hash & (RINGS - 1));
	struct tcphdr *tcp = header_at(skb, l4, sizeof(*tcp));

	return ring && tcp && ring->owner == from->hash && ring->noted && (__s32)(ring->next - bpf_ntohl(tcp->seq)) > 0;
}

#endif
