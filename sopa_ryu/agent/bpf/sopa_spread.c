/*
 * XDP at an edge switch's port towards a host, for the `id` carrier (docs/wire-format.md): a label that asks for it becomes that of the
 * candidate path whose turn it is by the packet's IPv4 identification. Every packet passes; one whose path is not known goes unlabelled.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "choose.h"
#include "label.h"
#include "maps.h"
#include "xdp_frame.h"

/* When the path table expires, CLOCK_MONOTONIC in ns. Each answer of the controller extends it (label/edge_spreader.py). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} expiry SEC(".maps");

/* Returns LABELLED with the packet's path, or the reason why it has none. */
static __always_inline enum reason find_path(struct xdp_md *ctx, __u8 base, struct path_word **path)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 *in_force = word(&turn, 0);
	struct iphdr *ip = ipv4_of(data, end);
	__u64 *expires = word(&expiry, 0);
	struct fabric_word *fabric;
	struct choice_word *choice;
	struct choice found = {};
	enum reason reason;
	__u32 daddr;

	if (!ip || (void *)(ip + 1) > end || ip->version != 4)
		return MALFORMED;
	if (!in_force || !expires || !*expires)
		return NO_TABLE;
	if (bpf_ktime_get_ns() > *expires)
		return OUTDATED;
	found.table = word(&path_tables, *(volatile __u32 *)in_force & 1);
	if (!found.table)
		return NO_TABLE;
	fabric = word(found.table, FABRIC_WORD);
	choice = word(found.table, CHOICE_WORD);
	if (!fabric || !choice)
		return NO_TABLE;
	daddr = bpf_ntohl(ip->daddr);
	if ((daddr & fabric->netmask) != fabric->network)
		return OUTSIDE;
	reason = find_rack(daddr, choice, &found);
	if (reason != LABELLED)
		return reason;
	*path = word(found.table, found.first + packet_number(base, bpf_ntohs(ip->id)) % found.count);
	return *path ? LABELLED : NO_PATH;
}

SEC("xdp.frags")
int sopa_spread(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct path_word *path = (void *)0; /* Linux 6.1 takes it for read where it has not been set */

	if ((void *)(eth + 1) > end)
		return XDP_PASS;
	if (eth->h_source[0] != CARRIER_PREFIX_0 || eth->h_source[1] != CARRIER_PREFIX_1 || eth->h_source[2] != OPTION_TYPE ||
	    eth->h_source[3] != OPTION_LENGTH || eth->h_source[4] != UNUSED_HOP || eth->h_source[5] == UNUSED_HOP)
		return XDP_PASS;
	count(find_path(ctx, eth->h_source[5], &path));
	if (path) {
		eth->h_source[4] = path->up1;
		eth->h_source[5] = path->up2;
		count_path(path->up1, path->up2);
	} else {
		eth->h_source[2] = 0; /* no label any more: the switch hashes the flow */
	}
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Apache-2.0"; /* no helper in use asks for the GPL */
