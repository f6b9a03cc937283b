/* The headers of a TCP packet of MCS: what is read of them, and how bytes of them are replaced. */
#ifndef SOPA_MCS_PACKET_H
#define SOPA_MCS_PACKET_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "mcs.h"
#include "mcs_algorithms.h"
#include "packet.h"

/* Of headers without IPv4 options and IPv6 extension headers: such packets pass as they are. */
#define IPV4_HEADERS (ETH_HLEN + sizeof(struct iphdr))
#define IPV6_HEADERS (ETH_HLEN + sizeof(struct ipv6hdr))
#define FLAGS 12 /* bytes of the TCP header */
#define WINDOW 14
#define CHECKSUM 16
#define ECN_BITS 3
#define ECT_0 2
#define CE 3
#define NOPS 0x01010101

/* The headers of a TCP packet, as far as they are read. */
struct parsed {
	struct connection_key key;
	struct segment segment;
	__u32 l4; /* byte of the frame where the TCP header begins */
	__u32 header; /* bytes of the TCP header */
	__u32 sack_at; /* byte of the TCP header where SACK begins, with its NOPs; 0: it has none */
	__u32 blocks; /* of SACK */
	__be16 source_port; /* as in the packet */
	__u16 first; /* two bytes of the IP header */
	__u8 ecn_bit; /* of them: the lowest of the two of ECN */
	__u8 ecn;
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

static __always_inline void read_sack(struct __sk_buff *skb, struct parsed *to)
{
	to->sack_at = find_sack(skb, to->l4, to->header, &to->blocks);
	if (!to->sack_at)
		return;
	/* A block before the ACK says that a packet has arrived twice (RFC 2883). */
	to->segment.sack = !before(read_word(skb, to->l4 + to->sack_at + 4), to->segment.ack);
	to->segment.sack_end = read_word(skb, to->l4 + to->sack_at + 8);
}

/*
 * Returns 2 for IPv6 and 0 for IPv4, by the first byte of the header. What follows from it is arithmetic, as the verifier would look at
 * all of a program for each family.
 */
static __always_inline __u32 six(__u8 first)
{
	return first >> 4 & 2;
}

static __always_inline __u32 l4_of(__u32 six)
{
	return IPV4_HEADERS + six * ((IPV6_HEADERS - IPV4_HEADERS) / 2);
}

/* Returns the TCP header, by the length of the header before it; null if it is not whole, or not in the linear part. */
static __always_inline struct tcphdr *find_tcp(struct __sk_buff *skb)
{
	__u8 *tcp;

	if (start(skb) + IPV4_HEADERS > end(skb))
		return (void *)0;
	tcp = start(skb) + l4_of(six(((__u8 *)start(skb))[ETH_HLEN]));
	if ((void *)tcp + sizeof(struct tcphdr) > end(skb) || (void *)tcp + tcp[FLAGS] / 16 * 4 > end(skb))
		return (void *)0;
	return (struct tcphdr *)tcp;
}

/* Reads the addresses of an IPv6 packet, as flows' keys have them. */
static __always_inline void read_addresses6(
	const struct mcs_settings *set, const struct ipv6hdr *ip, struct connection_key *key, int outwards)
{
	struct networks of = { set->prefix, set->network };
	__u64 source, destination, local, remote;

	source = from_words((const __be32 *)&ip->saddr, &of);
	destination = from_words((const __be32 *)&ip->daddr, &of);
	local = outwards ? source : destination;
	remote = outwards ? destination : source;
	key->local = local;
	key->remote = remote >> 32 ? 0 : remote; /* a host outside the fabric runs no MCS, and a hash may be any host's address */
	key->proto |= (local >> 32 & 1) * FROM_OUTSIDE;
}

/* Reads the headers; returns 0 for a packet that MCS has nothing to do with. */
static __always_inline int parse(struct __sk_buff *skb, const struct mcs_settings *set, struct parsed *to, int outwards)
{
	struct tcphdr *tcp = find_tcp(skb);
	struct ethhdr *eth;
	struct ipv6hdr *ip6;
	struct iphdr *ip;
	__u32 payload, bytes, there, family;
	__u8 *byte;

	if (!tcp) {
		bpf_skb_pull_data(skb, skb->len < IPV6_HEADERS + MAX_TCP_HEADER ? skb->len : IPV6_HEADERS + MAX_TCP_HEADER);
		tcp = find_tcp(skb);
	}
	if (!tcp || start(skb) + IPV4_HEADERS > end(skb))
		return 0;
	eth = start(skb);
	ip = start(skb) + ETH_HLEN;
	to->first = bpf_ntohs(*(__be16 *)ip);
	family = six(to->first >> 8);
	to->l4 = l4_of(family);
	to->ecn_bit = family * 2;
	to->key.proto = IPPROTO_TCP | family * (IPV6_KEY / 2);
	there = skb->len - to->l4;
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		if (to->first >> 8 != 0x45 || ip->protocol != IPPROTO_TCP || ip->frag_off & bpf_htons(IP_FRAGMENT_BITS))
			return 0;
		bytes = bpf_ntohs(ip->tot_len) - sizeof(*ip);
		if (!ip->tot_len && skb->gso_size) /* a burst above 64 KB has no length */
			bytes = there;
		to->key.local = bpf_ntohl(outwards ? ip->saddr : ip->daddr);
		to->key.remote = bpf_ntohl(outwards ? ip->daddr : ip->saddr);
	} else {
		ip6 = (void *)ip;
		if (eth->h_proto != bpf_htons(ETH_P_IPV6) || to->first >> 12 != 6 || !set->prefix)
			return 0;
		if ((void *)(ip6 + 1) > end(skb) || ip6->nexthdr != IPPROTO_TCP)
			return 0;
		bytes = bpf_ntohs(ip6->payload_len);
		if (!bytes && skb->gso_size)
			bytes = there;
		read_addresses6(set, ip6, &to->key, outwards);
	}
	to->header = tcp->doff * 4;
	/* padding of short frames is no payload */
	if (bytes > there || to->header < sizeof(*tcp) || bytes < to->header)
		return 0;
	payload = bytes - to->header;
	byte = (__u8 *)tcp + FLAGS;
	to->flags_byte = *byte;
	to->ecn = to->first >> to->ecn_bit & ECN_BITS;
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
	if (outwards)
		to->key.ports = bpf_ntohs(tcp->source) << 16 | bpf_ntohs(tcp->dest);
	else
		to->key.ports = bpf_ntohs(tcp->dest) << 16 | bpf_ntohs(tcp->source);
	return 1;
}

/* Replaces bytes of the TCP header, from byte `at` of it on. The kernel changes the checksum only where the stack or the card has not left it for later. */
static __always_inline int replace(struct __sk_buff *skb, const struct parsed *of, __u32 at, void *old, void *new, __u32 bytes)
{
	__s64 difference = bpf_csum_diff(old, bytes, new, bytes, 0);

	if (difference < 0 || bpf_l4_csum_replace(skb, of->l4 + CHECKSUM, 0, difference, 0))
		return -1;
	return bpf_skb_store_bytes(skb, of->l4 + at, new, bytes, 0);
}

/* Replaces a port or the window, likewise. */
static __always_inline int replace_short(struct __sk_buff *skb, const struct parsed *of, __u32 at, __be16 old, __be16 new)
{
	if (bpf_l4_csum_replace(skb, of->l4 + CHECKSUM, old, new, sizeof(new)))
		return -1;
	return bpf_skb_store_bytes(skb, of->l4 + at, &new, sizeof(new), 0);
}

#endif
