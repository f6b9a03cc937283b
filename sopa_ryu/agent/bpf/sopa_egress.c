/*
 * tc egress of a host's interface: writes the next path of the packet's flow, as the SOPA option word, into the Ethernet source
 * address (the `mac` carrier, DESIGN.md section 2). It drops nothing: what cannot be labelled goes out as it is, and is counted.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "flowhash.h"
#include "maps.h"
#include "packet.h"

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

static __always_inline enum reason label(struct __sk_buff *skb)
{
	struct destination_word *destination;
	struct fabric_word *fabric;
	struct choice_word *choice;
	struct path_word *path;
	struct flow_key key;
	enum reason reason;
	__u32 pod, edge, index, *in_force;
	void *table;

	reason = read_flow(skb, &key);
	if (reason != LABELLED)
		return reason;
	in_force = word(&turn, 0);
	table = in_force ? word(&path_tables, *in_force) : (void *)0;
	if (!table)
		return NO_TABLE;
	fabric = word(table, FABRIC_WORD);
	choice = word(table, CHOICE_WORD);
	if (!fabric || !choice)
		return NO_TABLE;
	if ((key.daddr & fabric->netmask) != fabric->network)
		return OUTSIDE;
	pod = key.daddr >> 16 & 0xff;
	edge = key.daddr >> 8 & 0xff;
	index = pod * choice->stride + edge;
	if (edge >= choice->stride || index >= choice->destinations)
		return OUTSIDE;
	destination = word(table, FIRST_DESTINATION + index);
	if (!destination || !destination->count)
		return NO_PATH;
	path = word(table, destination->first + position(&key, choice, destination->count));
	if (!path)
		return NO_PATH;

	/* A store by helper: a direct one makes the kernel copy cloned packets first, and drop them if it cannot. */
	__u8 source[ETH_ALEN] = { 0x02, 0x53, 0x9e, 0x04, path->up1, path->up2 };

	if (bpf_skb_store_bytes(skb, ETH_ALEN, source, sizeof(source), 0))
		return NOT_WRITABLE;
	if (skb->gso_segs > 1) /* one label for what will be several packets */
		count(GSO);
	return LABELLED;
}

SEC("tc")
int sopa_egress(struct __sk_buff *skb)
{
	count(label(skb));
	return TC_ACT_UNSPEC; /* on to the filters behind this one */
}

char LICENSE[] SEC("license") = "Apache-2.0"; /* no helper in use asks for the GPL */
