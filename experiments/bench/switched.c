/*
 * At a host's tc egress, behind the agent's program: does to a labelled packet what the switches on its way do, which is to write over the
 * hops of its label. So a host's packets can be measured and tested at a receiver without switches in between.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "../../sopa_ryu/agent/bpf/label.h"

#define UP1_OFFSET (ETH_ALEN + 4)

SEC("tc")
int switched(struct __sk_buff *skb)
{
	__u8 source[ETH_ALEN], consumed[] = { UNUSED_HOP, UNUSED_HOP };

	if (bpf_skb_load_bytes(skb, ETH_ALEN, source, sizeof(source)))
		return TC_ACT_UNSPEC;
	if (source[0] == CARRIER_PREFIX_0 && source[1] == CARRIER_PREFIX_1 && source[2] == OPTION_TYPE && source[3] == OPTION_LENGTH)
		bpf_skb_store_bytes(skb, UP1_OFFSET, consumed, sizeof(consumed), 0);
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Apache-2.0"; /* no helper in use asks for the GPL */
