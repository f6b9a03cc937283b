/*
 * Skip counters (`sopa-skip`): a path that has lost a packet loses turns, as in the bitmap of the Ultra Ethernet simulator. A skip moves
 * one packet: without losses the turns are those of ROUND_ROBIN.
 */
#ifndef SOPA_SKIP_H
#define SOPA_SKIP_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "flowhash.h"
#include "maps.h"

#define TURNS_OF_LOSS 4
#define TURNS_OF_TIMEOUT 15
#define MOST_TURNS 15
#define SKIP_SLOTS 4096

/* Turns that paths have still to lose, by a hash of rack and label. Paths that share a slot lose each other's, a packet each time. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SKIP_SLOTS);
	__type(key, __u32);
	__type(value, __u32);
} skips SEC(".maps");

/* Returns the counter of a path; `daddr` is of its last rack. */
static __always_inline __u32 *turns_to_lose(__u32 daddr, __u8 up1, __u8 up2)
{
	__u32 slot = ((__u64)(daddr >> 8 & 0xffff) << 16 | up1 << 8 | up2) * MIX_0 >> 52; /* 12 bits */

	return bpf_map_lookup_elem(&skips, &slot);
}

/* Where another processor changes a counter at the same time, its change alone counts: no counter leaves its bounds. */
static __always_inline void lose_turns(__u32 daddr, __u8 up1, __u8 up2, __u32 turns)
{
	__u32 *left = turns_to_lose(daddr, up1, up2), before;

	if (!left)
		return;
	before = *(volatile __u32 *)left;
	turns += before;
	__sync_val_compare_and_swap(left, before, turns < MOST_TURNS ? turns : MOST_TURNS);
}

/* Returns nonzero if a path loses this turn. */
static __always_inline int loses_turn(__u32 daddr, __u8 up1, __u8 up2)
{
	__u32 *left = turns_to_lose(daddr, up1, up2), before;

	if (!left)
		return 0;
	before = *(volatile __u32 *)left;
	return before && __sync_val_compare_and_swap(left, before, before - 1) == before;
}

#endif
