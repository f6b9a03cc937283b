/* Read the flow key of a frame. */
#ifndef SOPA_PACKET_H
#define SOPA_PACKET_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/icmpv6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "choose.h"
#include "maps.h"

#define IP_FRAGMENT_BITS 0x3fff /* more fragments, and the offset */
#define IPV6_FRAGMENT_BITS 0xfff9
#define ICMP_ECHO_REPLY 0
#define ICMP_ECHO_REQUEST 8
#define USUAL_HEADERS (ETH_HLEN + sizeof(struct iphdr) + 8)
#define MAX_HEADERS (ETH_HLEN + 4 + 60 + 8)
#define MAX_L4 511 /* also a mask for the verifier; losses of packets with more headers are not attributed to paths */
#define MAX_TCP_HEADER 60
#define SACK_WORD 0x01010500 /* two NOPs, kind 5, and its length in the lowest byte: as Linux aligns it */
#define TIMESTAMP_WORD 0x0101080a
#define MAX_EXTENSIONS 8 /* that are parsed; a flow with more is identified by its flow label instead of its ports */
#define FIRST_NEIGHBOUR_TYPE 133 /* router and neighbour discovery, RFC 4861 */
#define LAST_NEIGHBOUR_TYPE 137
#define AUTHENTICATION 51

struct vlan_tag {
	__be16 tci;
	__be16 protocol;
};

/* The offset of a packet's IP header, and of what follows it unless this is a fragment; and the VLAN tag that is in the frame before it if there is one. */
struct place {
	__u32 l3;
	__u32 l4;
	__be16 tci;
	__u8 tagged;
	__u8 unused; /* Without it `{}` leaves padding unset, and a function that is verified alone has to get all of it. */
};

/*
 * Returns nonzero for a packet that the host passes on for a container or a virtual machine: it came in by an interface of the host, or
 * no socket has sent it (a tunnel that the host ends has wrapped it; TCP's own replies by IPv6, as resets, have none either). Its sender knows nothing of several paths: its bursts are not
 * cut, and its fast-retransmit threshold is its own. So it gets no label, and the switches keep its flow on one path.
 */
static __always_inline int is_forwarded(struct __sk_buff *skb, __u32 protocol)
{
	return skb->ingress_ifindex || (!skb->sk && protocol != IPPROTO_TCP);
}

/* Returns a header at byte `offset` of the frame; null if it is not whole, or not in the linear part. */
static __always_inline void *header_at(struct __sk_buff *skb, __u32 offset, __u32 bytes)
{
	void *its;

	if (offset > MAX_L4)
		return (void *)0;
	asm volatile("" : "+r"(offset)); /* so that the verifier sees the bound where the offset is added */
	its = (void *)(long)skb->data + (offset & MAX_L4);
	return its + bytes > (void *)(long)skb->data_end ? (void *)0 : its;
}

static __always_inline __u32 read_word(struct __sk_buff *skb, __u32 at)
{
	__be32 *word = header_at(skb, at, sizeof(*word));

	return word ? bpf_ntohl(*word) : 0;
}

/*
 * Finds SACK where Linux writes it: behind the timestamps, if there are any. Returns the byte of the TCP header where it begins, with its
 * NOPs, and how many blocks it has; 0 if there is none.
 */
static __always_inline __u32 find_sack(struct __sk_buff *skb, __u32 l4, __u32 header, __u32 *blocks)
{
	__u32 at = 20, word, length;

	*blocks = 0;
	if (header < 32)
		return 0;
	word = read_word(skb, l4 + 20);
	if (word == TIMESTAMP_WORD) {
		at = 32;
		word = read_word(skb, l4 + 32);
	}
	length = word & 0xff;
	if ((word & ~0xffU) != SACK_WORD || (length != 10 && length != 18 && length != 26 && length != 34) || at + 2 + length > header)
		return 0;
	*blocks = length / 8;
	return at;
}

/*
 * Reads the flow's ports from byte `offset` of the frame on, of a protocol that has any. The switches answer neighbour discovery by the
 * Ethernet source address, so that it gets no label.
 */
static __always_inline enum reason read_ports(struct __sk_buff *skb, __u32 offset, struct flow_key *key)
{
	__u8 copy[8], type, *l4;
	__u32 is_echo = 0;

	switch (key->proto & (IPV6_KEY | 0xff)) {
	case IPPROTO_ICMP:
	case IPV6_KEY | IPPROTO_ICMPV6:
		is_echo = 1;
		break;
	case IPPROTO_TCP:
	case IPPROTO_UDP:
	case IPPROTO_SCTP:
	case IPPROTO_DCCP:
	case IPPROTO_UDPLITE:
	case IPV6_KEY | IPPROTO_TCP:
	case IPV6_KEY | IPPROTO_UDP:
	case IPV6_KEY | IPPROTO_SCTP:
	case IPV6_KEY | IPPROTO_DCCP:
	case IPV6_KEY | IPPROTO_UDPLITE:
		break;
	default:
		return LABELLED;
	}
	l4 = header_at(skb, offset, sizeof(copy));
	if (!l4) {
		if (bpf_skb_load_bytes(skb, offset, copy, sizeof(copy)))
			return MALFORMED;
		l4 = copy;
	}
	if (!is_echo) {
		key->ports = bpf_ntohl(*(__be32 *)l4);
		return LABELLED;
	}
	type = *l4;
	is_echo = key->proto & IPV6_KEY ? type == ICMPV6_ECHO_REQUEST || type == ICMPV6_ECHO_REPLY :
					  type == ICMP_ECHO_REQUEST || type == ICMP_ECHO_REPLY;
	key->ports = is_echo ? bpf_ntohs(*(__be16 *)(l4 + 4)) : 0;
	if (key->proto & IPV6_KEY && type >= FIRST_NEIGHBOUR_TYPE && type <= LAST_NEIGHBOUR_TYPE)
		return NOT_IPV4;
	return LABELLED;
}

/*
 * What follows is read by functions of their own, of whose results the verifier knows nothing: it would otherwise look at all of a program
 * behind each combination of headers and addresses.
 */
#define ADDRESS_OUTSIDE (1ULL << 32) /* the address is no host's of the fabric */
#define ADDRESS_UNUSED (1ULL << 33) /* it is multicast or link-local */
#define ADDRESS_UNKNOWN (1ULL << 34) /* the fabric has no IPv6, or is not known */

/* Returns an IPv6 address as a flow's key has it, in 32 bits, with flags above; `prefix` is the fabric's, 0 if it has none. */
__attribute__((noinline)) __u64 short_address(__u64 high, __u64 low, __u64 prefix, __u32 network)
{
	if (!prefix)
		return ADDRESS_UNKNOWN;
	if ((high & ~0xffffULL) == prefix)
		return inside_address(high, low, network);
	if (high >> 56 == 0xff || high >> 54 == 0xfe80 >> 6)
		return ADDRESS_UNUSED | ADDRESS_OUTSIDE | outside_address(high, low);
	return ADDRESS_OUTSIDE | outside_address(high, low);
}

/* The prefix of the fabric's IPv6 addresses, 0 if it has none, and the network of the others. */
struct networks {
	__u64 prefix;
	__u32 network;
};

static __always_inline struct networks networks_in_force(void)
{
	void *table = table_in_force();
	struct prefix_word *inside = table ? word(table, PREFIX_WORD) : (void *)0;
	struct fabric_word *fabric = table ? word(table, FABRIC_WORD) : (void *)0;
	struct networks found = {};

	if (inside && fabric) {
		found.prefix = inside->prefix;
		found.network = fabric->network;
	}
	return found;
}

static __always_inline __u64 from_words(const __be32 *its, const struct networks *of)
{
	return short_address((__u64)bpf_ntohl(its[0]) << 32 | bpf_ntohl(its[1]), (__u64)bpf_ntohl(its[2]) << 32 | bpf_ntohl(its[3]),
			     of->prefix, of->network);
}

#define HEADER_OFFSET 16 /* in bits: of the header that is next */
#define HEADER_FRAGMENT (1 << 8) /* it is a fragment's, of more than one */
#define HEADER_MALFORMED (1 << 9)

/* Returns what follows the IPv6 extension header that a header says is next, in those bits; the number of a header that is none as it is. */
__attribute__((noinline)) __u32 next_header(struct __sk_buff *skb, __u32 header)
{
	__u32 offset = header >> HEADER_OFFSET;
	__u8 its[8]; /* the next one; 8 bytes, behind the first 8, of this one; a fragment's offset and identification */

	if (bpf_skb_load_bytes(skb, offset, its, sizeof(its)))
		return HEADER_MALFORMED;
	switch (header & 0xff) {
	case IPPROTO_FRAGMENT:
		if ((its[2] << 8 | its[3]) & IPV6_FRAGMENT_BITS)
			return offset << HEADER_OFFSET | HEADER_FRAGMENT | its[0];
		return (offset + 8) << HEADER_OFFSET | its[0];
	case AUTHENTICATION:
		return (offset + (its[1] + 2) * 4) << HEADER_OFFSET | its[0];
	default:
		return (offset + (its[1] + 1) * 8) << HEADER_OFFSET | its[0];
	}
}

static __always_inline int is_extension(__u32 header)
{
	__u8 next = header;

	if (header & (HEADER_FRAGMENT | HEADER_MALFORMED))
		return 0;
	return next == IPPROTO_HOPOPTS || next == IPPROTO_ROUTING || next == IPPROTO_FRAGMENT || next == IPPROTO_DSTOPTS ||
	       next == AUTHENTICATION;
}

/* Returns what is behind the extension headers of an IPv6 packet, of which this is the first, in the bits of `next_header`. */
__attribute__((noinline)) __u32 upper_header(struct __sk_buff *skb, __u32 header)
{
	for (int i = 0; i < MAX_EXTENSIONS; i++) {
		if (!is_extension(header))
			break;
		header = next_header(skb, header);
	}
	return header;
}

/* Reads an IPv6 packet but for its ports. */
static __always_inline enum reason read_flow6(struct __sk_buff *skb, struct flow_key *key, struct place *at)
{
	struct networks of = networks_in_force();
	__u64 source, destination;
	__be32 ip[10];
	__u32 header;

	if (!of.prefix)
		return NOT_IPV4;
	if (bpf_skb_load_bytes(skb, at->l3, ip, sizeof(ip)) || bpf_ntohl(ip[0]) >> 28 != 6)
		return MALFORMED;
	destination = from_words(ip + 6, &of);
	if (destination & ADDRESS_UNUSED)
		return OUTSIDE;
	source = from_words(ip + 2, &of);
	header = (at->l3 + sizeof(ip)) << HEADER_OFFSET | ((__u8 *)ip)[6];
	if (is_extension(header))
		header = upper_header(skb, header);
	if (header & HEADER_MALFORMED)
		return MALFORMED;
	key->saddr = source;
	key->daddr = destination;
	key->proto = (header & 0xff) | IPV6_KEY | (source >> 32 & 1) * FROM_OUTSIDE | (destination >> 32 & 1) * TO_OUTSIDE;
	key->ports = bpf_ntohl(ip[0]) & 0xfffff;
	at->l4 = header >> HEADER_OFFSET;
	if (header & HEADER_FRAGMENT) {
		__be32 id;

		if (bpf_skb_load_bytes(skb, at->l4 + 4, &id, sizeof(id)))
			return MALFORMED;
		key->ports = bpf_ntohl(id);
		key->proto |= FRAGMENT_KEY;
	}
	return LABELLED;
}

/* Reads the key and the place; returns LABELLED, or the reason why this packet gets no label. */
__attribute__((noinline)) int read_flow(struct __sk_buff *skb, struct flow_key *key, struct place *at)
{
	void *data = (void *)(long)skb->data;
	void *end = (void *)(long)skb->data_end;
	struct ethhdr *eth;
	struct iphdr *ip;
	__be16 protocol;
	__u32 l3 = ETH_HLEN, ihl;

	if (!key || !at)
		return MALFORMED;
	at->tci = 0;
	at->tagged = 0;
	if (data + USUAL_HEADERS > end) { /* a short frame, or one whose headers are not in the linear part */
		bpf_skb_pull_data(skb, skb->len < MAX_HEADERS ? skb->len : MAX_HEADERS);
		data = (void *)(long)skb->data;
		end = (void *)(long)skb->data_end;
	}
	eth = data;
	if ((void *)(eth + 1) > end)
		return MALFORMED;
	protocol = eth->h_proto;
	if (protocol == bpf_htons(ETH_P_8021Q)) {
		struct vlan_tag *tag = data + l3;

		if ((void *)(tag + 1) > end)
			return MALFORMED;
		protocol = tag->protocol;
		at->tci = tag->tci;
		at->tagged = 1;
		l3 += sizeof(*tag);
	}
	at->l3 = l3;
	at->l4 = 0;
	if (protocol == bpf_htons(ETH_P_IPV6)) {
		enum reason reason = read_flow6(skb, key, at);

		return reason != LABELLED || key->proto & FRAGMENT_KEY ? reason : read_ports(skb, at->l4, key);
	}
	if (protocol != bpf_htons(ETH_P_IP))
		return NOT_IPV4;
	ip = data + l3;
	if ((void *)(ip + 1) > end)
		return MALFORMED;
	ihl = ip->ihl * 4;
	if (ip->version != 4 || ihl < sizeof(*ip) || l3 + ihl > skb->len)
		return MALFORMED;
	key->saddr = bpf_ntohl(ip->saddr);
	key->daddr = bpf_ntohl(ip->daddr);
	key->proto = ip->protocol;
	key->ports = 0;
	at->l4 = l3 + ihl;
	if (ip->frag_off & bpf_htons(IP_FRAGMENT_BITS)) { /* only the first has ports, and all are to take one path */
		key->ports = bpf_ntohs(ip->id);
		key->proto |= FRAGMENT_KEY;
		return LABELLED;
	}
	return read_ports(skb, at->l4, key);
}

#endif
