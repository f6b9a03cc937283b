/* Carriers that make packets longer: what fits through the fabric. */
#ifndef SOPA_MTU_H
#define SOPA_MTU_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* The largest IP packet that fits through the fabric, in bytes: the interface's MTU before the agent lowered it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} fabric_mtu SEC(".maps");

static __always_inline int fits(__u32 bytes)
{
	__u32 zero = 0, *mtu = bpf_map_lookup_elem(&fabric_mtu, &zero);

	return mtu && bytes <= *mtu;
}

#endif
