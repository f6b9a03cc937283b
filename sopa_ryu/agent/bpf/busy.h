/* Which racks a host's own packets go to now: their candidate paths are probed more often. docs/probes.md; read by kernel/own_traffic.py. */
#ifndef SOPA_BUSY_H
#define SOPA_BUSY_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "choose.h"

/* Racks that packets go to: time in jiffies << 16 | pod << 8 | edge, at most once a jiffy. Racks of the same slot show by turns. */
#define BUSY_SLOTS 512

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, BUSY_SLOTS);
	__type(key, __u32);
	__type(value, __u64);
} busy SEC(".maps");

static __always_inline void note_busy(__u32 daddr)
{
	__u32 rack = daddr >> 8 & 0xffff;
	__u64 now = bpf_jiffies64() << 16 | rack;
	volatile __u64 *slot = word(&busy, rack * MIX_0 >> 55); /* 9 bits */

	if (slot && *slot != now)
		*slot = now;
}

#endif
