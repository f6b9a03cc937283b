/* The headers of a TCP packet of MCS: what is read of them, and how bytes of them are replaced. */
#ifndef SOPA_MCS_PACKET_H
#define SOPA_MCS_PACKET_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "mcs.h"
#include "mcs_algorithms.h"
#include "packet.h"

#define L4 (ETH_HLEN + sizeof(struct iphdr)) /* no IPv4 options: such packets pass as they are */
#define FLAGS_AT (L4 + 12)
#define WINDOW_AT (L4 + 14)
#define MAX_TCP_HEADER 60
#define ECN_BITS 3
#define ECT_0 2
#define CE 3
#define SACK_WORD 0x01010500 /* two NOPs, kind 5, and its length in the lowest byte: as Linux aligns it */
#define TIMESTAMP_WORD 0x0101080a
#define NOPS 0x01010101

/* The headers of a TCP packet, as far as they are read. */
struct parsed {
	struct connection_key key;
	struct segment segment;
	__u32 header; /* bytes of the TCP header */
	__u32 sack_at; /* byte of the TCP header where SACK begins, with its NOPs; 0: it has none */
	__u32 blocks; /* of SACK */
	__be16 source_port; /* as in the packet */
	__u8 tos;
	__u8 flags_byte; /* byte 12 of the TCP header */
	__u8 syn;
	__u8 rst;
};

static __always_inline void *start(struct __sk_buff *skb)
{
	return (void *)(long)skb->data;
}

static __always_inline void *end(struct __sk_buff *skb)
{
	return (void *)(long)skb->data_end;
}

static __always_inline __u32 read_word(struct __sk_buff *skb, __u32 at)
{
	__be32 *word = start(skb) + at;

	return (void *)(word + 1) <= end(skb) ? bpf_ntohl(*word) : 0;
}

/* Finds SACK where Linux writes it: behind the timestamps, if there are any. */
static __always_inline void read_sack(struct __sk_buff *skb, struct parsed *to)
{
	__u32 at = 20, word, length;

	if (to->header < 32)
		return;
	word = read_word(skb, L4 + 20);
	if (word == TIMESTAMP_WORD) {
		at = 32;
		word = read_word(skb, L4 + 32);
	}
	length = word & 0xff;
	if ((word & ~0xffU) != SACK_WORD || (length != 10 && length != 18 && length != 26 && length != 34))
		return;
	if (at + 2 + length > to->header)
		return;
	to->sack_at = at;
	to->blocks = length / 8;
	/* A block before the ACK says that a packet has arrived twice (RFC 2883). */
	to->segment.sack = !before(read_word(skb, L4 + at + 4), to->segment.ack);
	to->segment.sack_end = read_word(skb, L4 + at + 8);
}

/* Reads the headers; returns 0 for a packet that MCS has nothing to do with. */
static __always_inline int parse(struct __sk_buff *skb, struct parsed *to, int outwards)
{
	struct ethhdr *eth;
	struct iphdr *ip;
	struct tcphdr *tcp;
	__u32 payload, bytes;
	__u8 *byte;

	if (start(skb) + L4 + sizeof(*tcp) > end(skb) || start(skb) + L4 + ((__u8 *)start(skb))[L4 + 12] / 16 * 4 > end(skb))
		bpf_skb_pull_data(skb, skb->len < L4 + MAX_TCP_HEADER ? skb->len : L4 + MAX_TCP_HEADER);
	if (start(skb) + L4 + sizeof(*tcp) > end(skb))
		return 0;
	eth = start(skb);
	ip = start(skb) + ETH_HLEN;
	tcp = start(skb) + L4;
	if (eth->h_proto != bpf_htons(ETH_P_IP) || ip->version != 4 || ip->ihl != 5 || ip->protocol != IPPROTO_TCP)
		return 0;
	if (ip->frag_off & bpf_htons(IP_FRAGMENT_BITS))
		return 0;
	to->header = tcp->doff * 4;
	bytes = skb->len - ETH_HLEN;
	if (ip->tot_len || !skb->gso_size) { /* padding of short frames is no payload; a burst above 64 KB has no length */
		if (bpf_ntohs(ip->tot_len) > bytes)
			return 0;
		bytes = bpf_ntohs(ip->tot_len);
	}
	if (to->header < sizeof(*tcp) || bytes < sizeof(*ip) + to->header || start(skb) + L4 + to->header > end(skb))
		return 0;
	payload = bytes - sizeof(*ip) - to->header;
	byte = (__u8 *)tcp + 12;
	to->flags_byte = *byte;
	to->tos = ip->tos;
	to->source_port = tcp->source;
	to->syn = tcp->syn;
	to->rst = tcp->rst;
	to->sack_at = 0;
	to->blocks = 0;
	to->segment.seq = bpf_ntohl(tcp->seq);
	to->segment.ack = bpf_ntohl(tcp->ack_seq);
	to->segment.size = payload + tcp->fin;
	to->segment.packets = skb->gso_segs > 1 ? skb->gso_segs : 1;
	to->segment.mss = skb->gso_size ?: payload;
	to->segment.has_ack = tcp->ack;
	to->segment.fin = tcp->fin;
	to->segment.pure = tcp->ack && !payload && !tcp->syn && !tcp->fin && !tcp->rst;
	to->segment.sack = 0;
	to->segment.sack_end = 0;
	if (outwards) {
		to->key.local = bpf_ntohl(ip->saddr);
		to->key.remote = bpf_ntohl(ip->daddr);
		to->key.ports = bpf_ntohs(tcp->source) << 16 | bpf_ntohs(tcp->dest);
	} else {
		to->key.local = bpf_ntohl(ip->daddr);
		to->key.remote = bpf_ntohl(ip->saddr);
		to->key.ports = bpf_ntohs(tcp->dest) << 16 | bpf_ntohs(tcp->source);
	}
	return 1;
}

/* Replaces bytes of the TCP header. The kernel changes the checksum only where the stack or the card has not left it for later. */
static __always_inline int replace(struct __sk_buff *skb, __u32 at, void *old, void *new, __u32 bytes)
{
	__s64 difference = bpf_csum_diff(old, bytes, new, bytes, 0);

	if (difference < 0 || bpf_l4_csum_replace(skb, L4 + 16, 0, difference, 0))
		return -1;
	return bpf_skb_store_bytes(skb, at, new, bytes, 0);
}

#endif
