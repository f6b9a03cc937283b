// SPDX-License-Identifier: Apache-2.0
/* Loss and flipped bits at a port's clsact egress: a grey or a corrupting link. Which packets is decided by their number and a seed. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#define MAX_FAULTS 4096
#define LOSS 0
#define CORRUPTION 1
#define BITS 8
#define GAMMA 0x9e3779b97f4a7c15ULL

/* experiments/emulation/bad_links.py */
struct key {
	__u32 ifindex; /* unique in a network namespace */
	__u32 kind;
};

struct fault {
	__u64 seed;
	__u64 threshold; /* probability times 2^32 */
};

struct count {
	__u64 packets; /* since the fault began: the number of the next one */
	__u64 hit;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_FAULTS);
	__type(key, struct key);
	__type(value, struct fault);
} faults SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_FAULTS);
	__type(key, struct key);
	__type(value, struct count);
} counts SEC(".maps");

/* The draw of that number from the seed's sequence: splitmix64 (Steele et al., OOPSLA 2014). */
static __u64 drawn(__u64 seed, __u64 number)
{
	__u64 z = seed + (number + 1) * GAMMA;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

/* Return whether the fault of a kind takes this packet, and a further draw. */
static int takes(struct __sk_buff *skb, __u32 kind, __u64 *further)
{
	struct key key = {.ifindex = skb->ifindex, .kind = kind};
	struct fault *fault = bpf_map_lookup_elem(&faults, &key);
	struct count *count = bpf_map_lookup_elem(&counts, &key);
	__u64 draw;

	if (!fault || !count)
		return 0;
	draw = drawn(fault->seed, __sync_fetch_and_add(&count->packets, 1));
	if (draw >> 32 >= fault->threshold)
		return 0;
	__sync_fetch_and_add(&count->hit, 1);
	*further = drawn(draw, 0);
	return 1;
}

SEC("tc")
int bad_link(struct __sk_buff *skb)
{
	__u64 further = 0;
	__u32 bit;
	__u8 byte;

	if (takes(skb, LOSS, &further))
		return TC_ACT_STOLEN; /* counts as sent; a dropped one would be an error for its sender */
	if (takes(skb, CORRUPTION, &further) && skb->len) {
		bit = further % ((__u64)skb->len * BITS);
		if (!bpf_skb_load_bytes(skb, bit / BITS, &byte, 1)) {
			byte ^= 1 << bit % BITS;
			bpf_skb_store_bytes(skb, bit / BITS, &byte, 1, 0);
		}
	}
	return TC_ACT_UNSPEC; /* the next filter decides */
}

char LICENSE[] SEC("license") = "Apache-2.0"; /* no helper in use asks for the GPL */
