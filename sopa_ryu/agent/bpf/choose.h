/* Choose a packet's path: the next of its flow, out of the candidate paths to its destination's rack. */
#ifndef SOPA_CHOOSE_H
#define SOPA_CHOOSE_H

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "flowhash.h"
#include "maps.h"
#include "skip.h"

/* What a packet's path is chosen from. */
struct choice {
	void *table;
	__u32 in_force; /* `turn` when the table was found */
	__u32 policy;
	__u32 hash; /* of the flow */
	__u32 first; /* word of the first candidate */
	__u32 count;
	__u32 sprayed; /* 0: the flow keeps one path */
	__u32 spreads; /* edge switches' ports may spread its packets */
	struct flow_state *state; /* null for fragments, with HASH, and where there is no room */
};

/* An element of a table or of any other array map: of a path table, one 8-byte word. */
static __always_inline void *word(void *table, __u32 index)
{
	return bpf_map_lookup_elem(table, &index);
}

/* Returns the path table in force; null if there is none. */
static __always_inline void *table_in_force(void)
{
	__u32 *in_force = word(&turn, 0);

	return in_force ? word(&path_tables, *(volatile __u32 *)in_force & 1) : (void *)0;
}

/* LEAST_USED compares so many candidates at most: all of them at k=4, that many choices beyond (Mitzenmacher 2001). */
#define MAX_COMPARED 8
#define LOOKS_BACK 65536 /* bytes: a path that was unusable for a while does not get every packet until it has caught up */

/*
 * Returns nonzero if each packet of a flow takes the next path. Functions with a loop are not inlined: the verifier looks at them once, not
 * at all that may follow each of their turns, which costs the agent half a second of a processor for each interface.
 */
__attribute__((noinline)) int is_sprayed(__u32 protocol, __u32 ports)
{
	__u32 proto = protocol & 0xff, source = ports >> 16, destination = ports & 0xffff;
	struct spray *rules = word(&spray, 0);

	if (!rules || !(rules->kept[proto >> 6] >> (proto & 63) & 1))
		return 1;
	if (protocol != IPPROTO_UDP)
		return 0;
	for (int i = 0; i < SPRAY_RANGES; i++) {
		__u32 first = rules->udp[i].first, last = rules->udp[i].last;

		if (i >= rules->ranges)
			break;
		if ((source >= first && source <= last) || (destination >= first && destination <= last))
			return 1;
	}
	return 0;
}

/* Returns a new flow's state; null if there is no room. */
static __always_inline struct flow_state *new_flow(const struct flow_key *key, int sprayed)
{
	struct flow_state first = { .path = sprayed ? 0 : KEEPS_PATH };

	/* Another CPU may insert the same flow in between: the first wins, and both count on its entry. */
	bpf_map_update_elem(&flows, key, &first, BPF_NOEXIST);
	return bpf_map_lookup_elem(&flows, key);
}

/*
 * A flow knows its candidates for as long as the path table in force is the one that it had them from. They are one word, read and
 * written at once: CPUs that send packets of the same flow while tables are swapped see one table's or the other's.
 */
#define KNOWN_COUNT_BITS 13
#define KNOWN_FIRST_BITS 24 /* the agent makes no larger tables */

static __always_inline int recall(const struct flow_state *state, __u32 version, struct choice *choice)
{
	__u64 known = *(volatile const __u64 *)&state->known;

	choice->count = known & ((1 << KNOWN_COUNT_BITS) - 1);
	choice->first = known >> KNOWN_COUNT_BITS & ((1 << KNOWN_FIRST_BITS) - 1);
	choice->hash = state->hash;
	return choice->count && known >> (KNOWN_COUNT_BITS + KNOWN_FIRST_BITS) == version;
}

static __always_inline void remember(struct flow_state *state, __u32 version, const struct choice *choice)
{
	__u64 known = ((__u64)version << KNOWN_FIRST_BITS | choice->first) << KNOWN_COUNT_BITS | choice->count;

	state->hash = choice->hash; /* the same for all tables of an agent, whose seed does not change */
	*(volatile __u64 *)&state->known = known;
}

#define MAX_SEARCHED 1024 /* k=64; of more candidates than that a path behind them counts as gone */

/* Returns up1 and up2, in 8 bits each, of the path in a word of a table, by its index; more than that if there is none. */
__attribute__((noinline)) __u32 path_at(__u32 index, __u32 at)
{
	void *table = word(&path_tables, index);
	struct path_word *path = table ? word(table, at) : (void *)0;

	return path ? path->up1 << 8 | path->up2 : 1 << 16;
}

/* Returns the place of a path among the candidates of a table; `count` if it is none of them. */
__attribute__((noinline)) __u32 place_of(__u32 index, __u32 first, __u32 count, __u32 path)
{
	for (__u32 i = 0; i < MAX_SEARCHED; i++) {
		if (i >= count)
			break;
		if (path_at(index, first + i) == path)
			return i;
	}
	return count;
}

/*
 * Gives a flow that keeps its path a place among the candidates of another table: its path's, or the one of its hash where the path is
 * gone. So a failure moves only the flows whose paths it takes.
 */
static __always_inline void keep_path(struct flow_state *state, const struct choice *found, __u32 index)
{
	__u32 at = state->path & HAS_PATH ? place_of(index, found->first, found->count, state->path & 0xffff) : found->count;
	struct path_word *path;

	if (at >= found->count)
		at = scaled(found->hash, found->count);
	path = word(found->table, found->first + at);
	if (!path)
		return;
	state->turns = at;
	state->path = KEEPS_PATH | HAS_PATH | path->up1 << 8 | path->up2;
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
__attribute__((noinline)) __u32 least_used(__u32 index, __u32 first, __u32 start, __u32 count)
{
	void *table = word(&path_tables, index);
	__u64 least = ~0ULL, most = 0, *chosen = (void *)0;
	__u32 at = start, found = start;

	if (!table)
		return start;
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

#define MAX_SKIPPED 64 /* by a packet: all paths between pods at k=16 */

/* Returns the place of the flow's next path that does not lose its turn; at the latest the one after each has lost one. */
__attribute__((noinline)) __u32 after_skips(struct flow_state *state, __u32 index, __u32 first, __u32 count, __u32 daddr)
{
	__u32 most = count < MAX_SKIPPED ? count : MAX_SKIPPED, at = 0;
	void *table = word(&path_tables, index);

	if (!state || !table)
		return 0;
	for (__u32 i = 0; i <= MAX_SKIPPED; i++) {
		struct path_word *path;

		at = round_robin(state->hash, __sync_fetch_and_add(&state->turns, 1), count);
		path = word(table, first + at);
		if (!path || i >= most || !loses_turn(daddr, path))
			break;
	}
	return at;
}

/* Returns the index of the packet's path among the candidates, and advances the flow. */
static __always_inline __u32 position(const struct choice *from, __u32 daddr, __u32 bytes)
{
	struct flow_state *state = from->state;
	struct parameter_word *parameter;
	__u64 n;

	if (!state || from->count == 1)
		return scaled(from->hash, from->count);
	if (!from->sprayed) /* another processor may have given it a place in a longer set */
		return state->turns < from->count ? state->turns : scaled(from->hash, from->count);
	if (from->policy < FLOWLET) {
		n = __sync_fetch_and_add(&state->turns, 1);
		if (from->policy == RANDOM)
			return random_choice(from->hash, n, from->count);
		if (from->policy == LEAST_USED)
			return least_used(from->in_force & 1, from->first, random_choice(from->hash, n, from->count), from->count);
		return round_robin(from->hash, n, from->count);
	}
	if (from->policy == SOPA_SKIP)
		return after_skips(state, from->in_force & 1, from->first, from->count, daddr);
	parameter = word(from->table, PARAMETER_WORD);
	if (!parameter)
		return scaled(from->hash, from->count);
	if (from->policy == FLOWLET)
		return random_choice(from->hash, flowlet(state, parameter->value), from->count);
	n = __sync_fetch_and_add(&state->mark, bytes);
	return round_robin(from->hash, parameter->value ? n / parameter->value : n, from->count);
}

/*
 * Finds the candidate paths to the flow's gateway. Later fragments have no ports, so all fragments between two hosts go to one gateway:
 * it may have to put them together before it can translate their addresses.
 */
static __always_inline enum reason find_way_out(const struct flow_key *key, struct choice *found)
{
	struct outside_word *outside = word(found->table, OUTSIDE_WORD);
	struct destination_word *slot;
	struct flow_key flow = *key;

	if (!outside || !outside->has_slots)
		return OUTSIDE;
	if (!(key->proto & IPV6_KEY) && key->daddr >> 28 >= 0xe) /* multicast, and what is nobody's address */
		return OUTSIDE;
	if (flow.proto & FRAGMENT_KEY) {
		flow.ports = 0;
		flow.proto &= ~FRAGMENT_KEY;
	}
	slot = word(found->table, outside->first + flow_hash(&flow, GATEWAY_SEED) % GATEWAY_SLOTS);
	if (!slot || !slot->count)
		return NO_PATH;
	found->first = slot->first;
	found->count = slot->count;
	return LABELLED;
}

/*
 * Returns nonzero for a packet that a gateway brings in from outside. Nobody before it could label it, so that forwarded packets are
 * labelled, too.
 */
static __always_inline int comes_in(const struct flow_key *key, void *table)
{
	struct outside_word *outside = word(table, OUTSIDE_WORD);
	struct fabric_word *fabric = word(table, FABRIC_WORD);

	if (!outside || !fabric || !outside->leads_out)
		return 0;
	return key->proto & IPV6_KEY ? key->proto & FROM_OUTSIDE : (key->saddr & fabric->netmask) != fabric->network;
}

/* Finds the candidate paths to an address of the fabric; returns LABELLED, or the reason why there are none. */
static __always_inline enum reason find_rack(__u32 daddr, const struct choice_word *choice, struct choice *found)
{
	__u32 pod = daddr >> 16 & 0xff, edge = daddr >> 8 & 0xff, index = pod * choice->stride + edge;
	struct destination_word *destination;

	if (edge >= choice->stride || index >= choice->destinations)
		return OUTSIDE;
	destination = word(found->table, FIRST_DESTINATION + index);
	if (!destination || !destination->count)
		return NO_PATH;
	found->first = destination->first;
	found->count = destination->count;
	return LABELLED;
}

/* Finds the candidate paths to the flow's destination; returns LABELLED, or the reason why there are none. */
static __always_inline enum reason find_candidates(const struct flow_key *key, struct choice *found)
{
	struct fabric_word *fabric;
	struct choice_word *choice;

	fabric = word(found->table, FABRIC_WORD);
	choice = word(found->table, CHOICE_WORD);
	if (!fabric || !choice)
		return NO_TABLE;
	found->hash = flow_hash(key, choice->seed);
	if (key->proto & IPV6_KEY ? key->proto & TO_OUTSIDE : (key->daddr & fabric->netmask) != fabric->network)
		return find_way_out(key, found);
	return find_rack(key->daddr, choice, found);
}

/* Finds what the path of a packet of this flow is chosen from; returns LABELLED, or the reason why there is nothing. */
static __always_inline enum reason consider(const struct flow_key *key, int forwarded, struct choice *found)
{
	__u32 *in_force = word(&turn, 0), index, version;
	struct flow_key flow = *key;
	enum reason reason;

	if (!in_force)
		return NO_TABLE;
	version = *(volatile __u32 *)in_force;
	index = version & 1;
	found->in_force = version;
	found->table = word(&path_tables, index);
	found->state = (void *)0;
	found->sprayed = 1;
	if (!found->table)
		return NO_TABLE;
	found->policy = version >> 1 & 7;
	found->spreads = found->policy == SPREADS;
	if (found->spreads)
		found->policy = ROUND_ROBIN;
	version >>= 4;
	if (forwarded) {
		struct spray *rules = word(&spray, 0);

		if (comes_in(key, found->table) || (rules && rules->forwarded))
			forwarded = 0;
	}
	if (!forwarded && found->policy != HASH && !(key->proto & FRAGMENT_KEY)) {
		found->state = bpf_map_lookup_elem(&flows, key);
		if (found->state) {
			found->sprayed = !found->state->path;
			if (recall(found->state, version, found))
				return LABELLED;
		}
	}
	/* All fragments between two hosts have one path: none has all ports. */
	if (key->proto & FRAGMENT_KEY && !is_sprayed(protocol_of(key), key->ports)) {
		found->sprayed = 0;
		flow.ports = 0;
	}
	reason = find_candidates(&flow, found);
	if (reason != LABELLED)
		return reason;
	if (forwarded)
		return FORWARDED;
	if (!found->state) {
		if (found->policy == HASH || key->proto & FRAGMENT_KEY || found->count == 1)
			return LABELLED; /* nothing to remember */
		found->sprayed = is_sprayed(protocol_of(key), key->ports);
		found->state = new_flow(key, found->sprayed);
	}
	if (found->state) {
		if (!found->sprayed)
			keep_path(found->state, found, index);
		remember(found->state, version, found);
	} else {
		count(NO_FLOW_STATE);
	}
	return LABELLED;
}

/*
 * Returns the device that cuts the burst into packets, or 0 if this is one, or bursts are not cut. Of another protocol than these the
 * kernel gives single packets no socket, by which they could be told from forwarded ones.
 */
static __always_inline __u32 cutting_device(struct __sk_buff *skb, const struct flow_key *key, const struct choice *from)
{
	__u32 *device;

	if (skb->gso_segs <= 1 || !from->sprayed || (protocol_of(key) != IPPROTO_TCP && protocol_of(key) != IPPROTO_UDP))
		return 0;
	device = word(&cut_by, 0);
	return device ? *device : 0;
}

/* Counts a packet, and returns what the kernel is to do with it: `device` is the one that cuts bursts. */
static __always_inline int verdict_of(enum reason reason, __u32 device)
{
	count(reason);
	if (reason == ACK_FILTERED)
		return TC_ACT_STOLEN; /* not dropped, for TCP: it would take that for congestion */
	if (reason == CUT)
		return bpf_redirect(device, 0);
	return TC_ACT_UNSPEC; /* on to the filters behind this one */
}

/* Returns the flow's next path, for a packet of so many bytes, and advances the flow. */
static __always_inline struct path_word *next_path(const struct choice *from, const struct flow_key *key, __u32 bytes)
{
	struct path_word *path = word(from->table, from->first + position(from, key->daddr, bytes));

	if (path && from->policy == LEAST_USED) /* also where there was no choice: those packets load the path as well */
		charge(path, bytes);
	return path;
}

#endif
