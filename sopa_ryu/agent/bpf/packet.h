/* Read the flow key of a frame. */
#ifndef SOPA_PACKET_H
#define SOPA_PACKET_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "maps.h"

#define IP_FRAGMENT_BITS 0x3fff /* more fragments, and the offset */
#define ICMP_ECHO_REPLY 0
#define ICMP_ECHO_REQUEST 8
#define USUAL_HEADERS (ETH_HLEN + sizeof(struct iphdr) + 8)
#define MAX_HEADERS (ETH_HLEN + 4 + 60 + 8)

struct vlan_tag {
	__be16 tci;
	__be16 protocol;
};

/* The offset of a packet's IPv4 header, and the VLAN tag that is in the frame before it if there is one. */
struct place {
	__u32 l3;
	__be16 tci;
	__u8 tagged;
};

/*
 * Returns nonzero for a packet that the host passes on for a container or a virtual machine: it came in by an interface of the host, or
 * no socket has sent it (a tunnel that the host ends has wrapped it). Its sender knows nothing of several paths: its bursts are not
 * cut, and its fast-retransmit threshold is its own. So it gets no label, and the switches keep its flow on one path.
 */
static __always_inline int is_forwarded(struct __sk_buff *skb)
{
	return skb->ingress_ifindex || !skb->sk;
}

/* Reads the flow's ports from byte `offset` of the frame on; 0 for a protocol without any. Returns negative if cut short. */
static __always_inline int read_ports(struct __sk_buff *skb, __u32 offset, struct flow_key *key)
{
	void *end = (void *)(long)skb->data_end;
	void *l4 = (void *)(long)skb->data + offset;
	__u8 copy[8];

	if (l4 + sizeof(copy) > end) {
		if (bpf_skb_load_bytes(skb, offset, copy, sizeof(copy)))
			return -1;
		l4 = copy;
	}
	if (key->proto != IPPROTO_ICMP)
		key->ports = bpf_ntohl(*(__be32 *)l4);
	else if (*(__u8 *)l4 == ICMP_ECHO_REQUEST || *(__u8 *)l4 == ICMP_ECHO_REPLY)
		key->ports = bpf_ntohs(*(__be16 *)(l4 + 4));
	return 0;
}

/* Reads the key and the place; returns LABELLED, or the reason why this packet gets no label. */
static __always_inline enum reason read_flow(struct __sk_buff *skb, struct flow_key *key, struct place *at)
{
	void *data = (void *)(long)skb->data;
	void *end = (void *)(long)skb->data_end;
	struct ethhdr *eth;
	struct iphdr *ip;
	__be16 protocol;
	__u32 l3 = ETH_HLEN, ihl;

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
	if (ip->frag_off & bpf_htons(IP_FRAGMENT_BITS)) { /* only the first has ports, and all are to take one path */
		key->ports = bpf_ntohs(ip->id);
		key->proto |= FRAGMENT_KEY;
		return LABELLED;
	}
	switch (key->proto) {
	case IPPROTO_TCP:
	case IPPROTO_UDP:
	case IPPROTO_ICMP:
	case IPPROTO_SCTP:
	case IPPROTO_DCCP:
	case IPPROTO_UDPLITE:
		return read_ports(skb, l3 + ihl, key) ? MALFORMED : LABELLED;
	default:
		return LABELLED;
	}
}

#endif
