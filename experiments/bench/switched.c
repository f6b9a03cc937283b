/*
 * At a host's tc egress, behind the agent's program: does to a labelled packet what the switches on its way do, which is to write over the
 * hops of its label, or to take its outer header off. So a host's packets can be measured and tested at a receiver without switches in
 * between.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "../../sopa_ryu/agent/bpf/label.h"

#define UP1_OFFSET (ETH_ALEN + 4)

#define BLOCK 0xfcbbbb00 /* of topologies/usids.py */
#define DECAP_L3_IPV4 (1ULL << 7) /* BPF_F_ADJ_ROOM_DECAP_L3_IPV4 and _IPV6, which Linux 6.1 has not */
#define DECAP_L3_IPV6 (1ULL << 8)

static __always_inline int take_off(struct __sk_buff *skb)
{
	__u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO;
	struct ipv6hdr outer;
	__be16 inner;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &outer, sizeof(outer)) || outer.daddr.s6_addr32[0] != bpf_htonl(BLOCK))
		return TC_ACT_UNSPEC;
	inner = bpf_htons(outer.nexthdr == IPPROTO_IPIP ? ETH_P_IP : ETH_P_IPV6);
	flags |= outer.nexthdr == IPPROTO_IPIP ? DECAP_L3_IPV4 : DECAP_L3_IPV6;
	if (bpf_skb_adjust_room(skb, -(int)sizeof(outer), BPF_ADJ_ROOM_MAC, flags) ||
	    bpf_skb_store_bytes(skb, 2 * ETH_ALEN, &inner, sizeof(inner), 0))
		return TC_ACT_SHOT;
	return TC_ACT_UNSPEC;
}

SEC("tc")
int switched(struct __sk_buff *skb)
{
	__u8 source[ETH_ALEN], consumed[] = { UNUSED_HOP, UNUSED_HOP };

	if (bpf_skb_load_bytes(skb, ETH_ALEN, source, sizeof(source)))
		return TC_ACT_UNSPEC;
	if (source[0] == CARRIER_PREFIX_0 && source[1] == CARRIER_PREFIX_1 && source[2] == OPTION_TYPE && source[3] == OPTION_LENGTH)
		bpf_skb_store_bytes(skb, UP1_OFFSET, consumed, sizeof(consumed), 0);
	return skb->protocol == bpf_htons(ETH_P_IPV6) ? take_off(skb) : TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Apache-2.0"; /* no helper in use asks for the GPL */
