/*
 * XDP at an edge switch's port towards a host, for the `option` carrier (docs/wire-format.md): copies the label of an IPv4 packet into
 * its Ethernet source address, where OpenFlow can match it, and clears an address that a host has written as one. Every packet passes.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "label.h"
#include "xdp_frame.h"

struct header {
	struct iphdr ip;
	struct label option;
};

/* Counter numbers: `Seen` in edge_parser.py. */
enum seen { BELIEVED, UNLABELLED, MALFORMED, RESERVED, FORGED, SEEN };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SEEN);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

static __always_inline void count(__u32 seen)
{
	__u64 *value = bpf_map_lookup_elem(&counters, &seen);

	if (value)
		(*value)++;
}

/* Returns BELIEVED with the label in `label`, or what was found instead. */
static __always_inline enum seen find(struct xdp_md *ctx, struct label *label)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct header *header = ipv4_of(data, end);
	__u32 bytes;

	if (!header || (void *)(header + 1) > end)
		return UNLABELLED;
	if (header->ip.version != 4 || header->ip.ihl < 6 || header->option.type != OPTION_TYPE)
		return UNLABELLED;
	bytes = bpf_ntohs(header->ip.tot_len);
	/* A large packet's end may lie in further buffers. */
	if (header->option.length != OPTION_LENGTH || bytes < header->ip.ihl * 4 ||
	    bytes > bpf_xdp_get_buff_len(ctx) - ((void *)header - data))
		return MALFORMED;
	*label = header->option;
	if (label->up1 == UNUSED_HOP && label->up2 != UNUSED_HOP)
		return RESERVED;
	return BELIEVED;
}

SEC("xdp.frags")
int sopa_parser(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct label label;
	enum seen seen;

	if ((void *)(eth + 1) > end)
		return XDP_PASS;
	seen = find(ctx, &label);
	if (seen == BELIEVED) {
		eth->h_source[0] = CARRIER_PREFIX_0;
		eth->h_source[1] = CARRIER_PREFIX_1;
		__builtin_memcpy(eth->h_source + 2, &label, sizeof(label));
	} else if (eth->h_source[0] == CARRIER_PREFIX_0 && eth->h_source[1] == CARRIER_PREFIX_1 &&
		   eth->h_source[2] == OPTION_TYPE && eth->h_source[3] == OPTION_LENGTH) {
		eth->h_source[2] = 0; /* no label any more */
		seen = FORGED;
	}
	count(seen);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Apache-2.0"; /* no helper in use asks for the GPL */
