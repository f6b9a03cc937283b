/*
 * Skip counters (`sopa-skip`): a path that loses packets loses turns, as in the bitmap of the Ultra Ethernet simulator. A skip moves one
 * packet: without losses the turns are those of ROUND_ROBIN.
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
#define CHANCE 3 /* so many losses more than twice what is drawn */
#define REMEMBERED 64 /* losses and draws of a path before both are halved */
#define SKIP_SLOTS 4096

/*
 * In a healthy fabric most retransmissions are spurious: the packet was overtaken, not lost, and each skip reorders more packets. So a path
 * loses turns only if it has more retransmissions than chance explains. For each one a recent segment of the flow is drawn at random, and
 * counted for that segment's path.
 */
struct skip_counter {
	__u32 turns; /* still to lose */
	__u16 lost;
	__u16 drawn;
};

/* By a hash of rack and label. Paths that share a slot lose each other's turns, a packet each time. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SKIP_SLOTS);
	__type(key, __u32);
	__type(value, struct skip_counter);
} skips SEC(".maps");

/* Returns the counter of a path, whose up1 and up2 are in 8 bits each; `daddr` is of its last rack. */
static __always_inline struct skip_counter *skip_counter_of(__u32 daddr, __u16 path)
{
	__u32 slot = ((__u64)(daddr >> 8 & 0xffff) << 16 | path) * MIX_0 >> 52; /* 12 bits */

	return bpf_map_lookup_elem(&skips, &slot);
}

static __always_inline void halve_old(struct skip_counter *its)
{
	if (its->lost + its->drawn < REMEMBERED)
		return;
	its->lost /= 2;
	its->drawn /= 2;
}

/*
 * Takes turns from a path that has lost a segment, if another one that was drawn is not as likely to have. A timeout is no matter of
 * order. Where another processor changes a counter at the same time, its change alone counts: no counter leaves its bounds.
 */
static __always_inline void lose_turns(__u32 daddr, __u16 path, __u16 drawn, int timed_out)
{
	struct skip_counter *its = skip_counter_of(daddr, path), *other = skip_counter_of(daddr, drawn);
	__u32 before, turns = timed_out ? TURNS_OF_TIMEOUT : TURNS_OF_LOSS;

	if (!its || !other)
		return;
	other->drawn++;
	halve_old(other);
	its->lost++;
	halve_old(its);
	if (!timed_out && its->lost <= 2 * its->drawn + CHANCE)
		return;
	before = *(volatile __u32 *)&its->turns;
	turns += before;
	__sync_val_compare_and_swap(&its->turns, before, turns < MOST_TURNS ? turns : MOST_TURNS);
}

/* Returns nonzero if a path loses this turn. */
static __always_inline int loses_turn(__u32 daddr, const struct path_word *path)
{
	struct skip_counter *its = skip_counter_of(end_of(path, daddr), path->up1 << 8 | path->up2);
	__u32 before;

	if (!its)
		return 0;
	before = *(volatile __u32 *)&its->turns;
	return before && __sync_val_compare_and_swap(&its->turns, before, before - 1) == before;
}

#endif
