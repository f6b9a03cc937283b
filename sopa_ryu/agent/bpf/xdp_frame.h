/* What the XDP programs of an edge switch's port read of a frame. */
#ifndef SOPA_XDP_FRAME_H
#define SOPA_XDP_FRAME_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct xdp_vlan_tag {
	__be16 tci;
	__be16 protocol;
};

/* Returns where the IPv4 header begins, behind at most one VLAN tag; null of any other frame. That it is whole remains to be checked. */
static __always_inline void *ipv4_of(void *data, void *end)
{
	struct ethhdr *eth = data;
	struct xdp_vlan_tag *tag = (void *)(eth + 1);

	if ((void *)(eth + 1) > end)
		return (void *)0;
	if (eth->h_proto == bpf_htons(ETH_P_IP))
		return tag;
	if (eth->h_proto != bpf_htons(ETH_P_8021Q) || (void *)(tag + 1) > end || tag->protocol != bpf_htons(ETH_P_IP))
		return (void *)0;
	return tag + 1;
}

#endif
