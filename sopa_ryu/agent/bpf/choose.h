/* Which path a packet takes: the next of its flow, out of the candidates to its destination's rack. */
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

static __always_inline void *word(void *table, __u32 index)
{
	return bpf_map_lookup_elem(table, &index);
}

/* Takes the number of the flow's next packet, from 0; negative if the flow's state could not be kept. */
static __always_inline __s64 next_packet(const struct flow_key *key)
{
	__u64 *packets = bpf_map_lookup_elem(&flows, key);
	__u64 first = 0;

	if (!packets) {
		/* Another CPU may insert the same flow in between: the first wins, and both count on its entry. */
		bpf_map_update_elem(&flows, key, &first, BPF_NOEXIST);
		packets = bpf_map_lookup_elem(&flows, key);
		if (!packets)
			return -1;
	}
	return __sync_fetch_and_add(packets, 1);
}

static __always_inline __u32 position(const struct flow_key *key, const struct choice_word *choice, __u32 candidates)
{
	__u32 hash = flow_hash(key, choice->seed);
	__s64 n;

	if (choice->policy == HASH || candidates == 1 || key->proto & FRAGMENT_KEY)
		return scaled(hash, candidates);
	n = next_packet(key);
	if (n < 0) {
		count(NO_FLOW_STATE);
		return scaled(hash, candidates);
	}
	if (choice->policy == RANDOM)
		return random_choice(hash, n, candidates);
	return round_robin(hash, n, candidates);
}

/* Finds the candidates to the flow's destination; returns LABELLED, or the reason why there are none. */
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

/* Takes the flow's next turn. */
static __always_inline struct path_word *next_path(const struct flow_key *key, const struct candidates *from)
{
	return word(from->table, from->destination->first + position(key, from->choice, from->destination->count));
}

#endif
