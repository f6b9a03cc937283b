/* Choose a packet's path: the next of its flow, out of the candidate paths to its destination's rack. */
#ifndef SOPA_CHOOSE_H
#define SOPA_CHOOSE_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "flowhash.h"
#include "maps.h"

struct candidates {
	void *table;
	struct choice_word *choice;
	struct destination_word *destination;
};

/* An element of a table or of any other array map: of a path table, one 8-byte word. */
static __always_inline void *word(void *table, __u32 index)
{
	return bpf_map_lookup_elem(table, &index);
}

/* LEAST_USED compares so many candidates at most: all of them at k=4, that many choices beyond (Mitzenmacher 2001). */
#define MAX_COMPARED 8
#define LOOKS_BACK 65536 /* bytes: a path that was unusable for a while does not get every packet until it has caught up */

/* Returns the flow's state, a new one for a new flow; null if there is no room. */
static __always_inline struct flow_state *flow_state(const struct flow_key *key)
{
	struct flow_state *state = bpf_map_lookup_elem(&flows, key);
	struct flow_state first = { 0, 0 };

	if (state)
		return state;
	/* Another CPU may insert the same flow in between: the first wins, and both count on its entry. */
	bpf_map_update_elem(&flows, key, &first, BPF_NOEXIST);
	return bpf_map_lookup_elem(&flows, key);
}

/* Returns the number, from 0, of the flowlet that a packet belongs to now. */
static __always_inline __u64 flowlet(struct flow_state *state, __u64 gap)
{
	__u64 now = bpf_ktime_get_ns(), last = state->mark;

	state->mark = now;
	if (last && (__s64)(now - last) > (__s64)gap)
		return __sync_fetch_and_add(&state->turns, 1) + 1;
	return state->turns;
}

/* Returns the candidate that has carried least, of those compared from number `start` on; its load catches up with the others'. */
static __always_inline __u32 least_used(void *table, __u32 first, __u32 start, __u32 count)
{
	__u64 least = ~0ULL, most = 0, *chosen = (void *)0;
	__u32 at = start, found = start;

	for (int i = 0; i < MAX_COMPARED; i++) {
		struct path_word *path;
		__u64 *load;
		__u32 place;

		if (i >= count)
			break;
		path = word(table, first + at);
		if (!path)
			break;
		place = path_place(path->up1, path->up2);
		load = bpf_map_lookup_elem(&path_load, &place);
		if (!load)
			break;
		if (*load > most)
			most = *load;
		if (*load < least) {
			least = *load;
			chosen = load;
			found = at;
		}
		if (++at == count)
			at = 0;
	}
	if (chosen && most > LOOKS_BACK && least < most - LOOKS_BACK)
		*chosen = most - LOOKS_BACK;
	return found;
}

static __always_inline void charge(const struct path_word *path, __u32 bytes)
{
	__u32 place = path_place(path->up1, path->up2);
	__u64 *load = bpf_map_lookup_elem(&path_load, &place);

	if (load)
		*load += bytes; /* per CPU */
}

/* Returns the index of the packet's path in the candidate set. */
static __always_inline __u32 position(const struct flow_key *key, const struct candidates *from, __u32 bytes)
{
	const struct choice_word *choice = from->choice;
	__u32 candidates = from->destination->count;
	__u32 hash = flow_hash(key, choice->seed);
	struct parameter_word *parameter;
	struct flow_state *state;
	__u64 n;

	if (choice->policy == HASH || candidates == 1 || key->proto & FRAGMENT_KEY)
		return scaled(hash, candidates);
	state = flow_state(key);
	if (!state) {
		count(NO_FLOW_STATE);
		return scaled(hash, candidates);
	}
	if (choice->policy < FLOWLET) {
		n = __sync_fetch_and_add(&state->turns, 1);
		if (choice->policy == RANDOM)
			return random_choice(hash, n, candidates);
		if (choice->policy == LEAST_USED)
			return least_used(from->table, from->destination->first, random_choice(hash, n, candidates), candidates);
		return round_robin(hash, n, candidates);
	}
	parameter = word(from->table, PARAMETER_WORD);
	if (!parameter)
		return scaled(hash, candidates);
	if (choice->policy == FLOWLET)
		return random_choice(hash, flowlet(state, parameter->value), candidates);
	n = __sync_fetch_and_add(&state->mark, bytes);
	return round_robin(hash, parameter->value ? n / parameter->value : n, candidates);
}

/* Finds the candidate paths to the flow's destination; returns LABELLED, or the reason why there are none. */
static __always_inline enum reason find_candidates(const struct flow_key *key, struct candidates *found)
{
	struct fabric_word *fabric;
	__u32 pod, edge, index, *in_force;

	in_force = word(&turn, 0);
	found->table = in_force ? word(&path_tables, *in_force) : (void *)0;
	if (!found->table)
		return NO_TABLE;
	fabric = word(found->table, FABRIC_WORD);
	found->choice = word(found->table, CHOICE_WORD);
	if (!fabric || !found->choice)
		return NO_TABLE;
	if ((key->daddr & fabric->netmask) != fabric->network)
		return OUTSIDE;
	pod = key->daddr >> 16 & 0xff;
	edge = key->daddr >> 8 & 0xff;
	index = pod * found->choice->stride + edge;
	if (edge >= found->choice->stride || index >= found->choice->destinations)
		return OUTSIDE;
	found->destination = word(found->table, FIRST_DESTINATION + index);
	if (!found->destination || !found->destination->count)
		return NO_PATH;
	return LABELLED;
}

/* Returns the flow's next path, for a packet of so many bytes, and advances the flow. */
static __always_inline struct path_word *next_path(const struct flow_key *key, const struct candidates *from, __u32 bytes)
{
	struct path_word *path = word(from->table, from->destination->first + position(key, from, bytes));

	if (path && from->choice->policy == LEAST_USED) /* also where there was no choice: those packets load the path as well */
		charge(path, bytes);
	return path;
}

#endif
