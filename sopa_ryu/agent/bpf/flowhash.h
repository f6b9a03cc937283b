/* The flow hash and the choices made from it. sopa_ryu/agent/paths/flow_hash.py is its twin in Python: change both. */
#ifndef SOPA_FLOWHASH_H
#define SOPA_FLOWHASH_H

#include <linux/types.h>

/*
 * Also the key of the `flows` map. All in host order, so that the hash is the same number on every machine. An IPv6 address is that of the
 * same host's IPv4 (`inside_address`): so a flow's key is no larger, and racks are found alike.
 */
struct flow_key {
	__u32 saddr;
	__u32 daddr;
	__u32 ports; /* source << 16 | destination; an ICMP echo's identifier; a fragment's identification; IPv6's flow label without any */
	__u32 proto; /* the protocol number, and flags below */
};

#define FRAGMENT_KEY 0x100
#define IPV6_KEY 0x200
#define FROM_OUTSIDE 0x400 /* IPv6: the source is no address of the fabric */
#define TO_OUTSIDE 0x800 /* IPv6: nor is the destination */

/* Multipliers: 2^64 / golden ratio, and the two of splitmix64's finaliser (Steele, Lea, Flood, OOPSLA 2014). */
#define MIX_0 0x9e3779b97f4a7c15ULL
#define MIX_1 0xbf58476d1ce4e5b9ULL
#define MIX_2 0x94d049bb133111ebULL

static __always_inline __u64 mix64(__u64 x)
{
	x = (x ^ (x >> 30)) * MIX_1;
	x = (x ^ (x >> 27)) * MIX_2;
	return x ^ (x >> 31);
}

/* The protocol of a flow of either family, with FRAGMENT_KEY for a fragment. */
static __always_inline __u32 protocol_of(const struct flow_key *key)
{
	return key->proto & (FRAGMENT_KEY | 0xff);
}

/*
 * An IPv6 address in 32 bits, by its two halves: a host's of the fabric is that of its IPv4, as its rack and number are in both
 * (topologies/identity.py); any other is a hash.
 */
static __always_inline __u32 inside_address(__u64 high, __u64 low, __u32 network)
{
	low ^= low >> 32;
	low ^= low >> 16;
	low ^= low >> 8;
	return network | (high & 0xffff) << 8 | (low & 0xff);
}

static __always_inline __u32 outside_address(__u64 high, __u64 low)
{
	return mix64(high + low * MIX_0) >> 32;
}

static __always_inline __u32 flow_hash(const struct flow_key *key, __u32 seed)
{
	__u64 x = ((__u64)key->saddr << 32 | key->daddr) + seed * MIX_0;

	x = (x ^ (x >> 32)) * MIX_1;
	x ^= (__u64)key->ports << 32 | key->proto;
	return mix64(x) >> 32;
}

/* An even choice below `count` from 32 random bits, by multiplication: a division costs several times as much. */
static __always_inline __u32 scaled(__u32 bits, __u32 count)
{
	return (__u64)bits * count >> 32;
}

/* The index of packet n's path: every candidate once in each `count` packets, from the flow's own start. 64 bits never wrap. */
static __always_inline __u32 round_robin(__u32 hash, __u64 n, __u32 count)
{
	n += scaled(hash, count);
	/* Where a 64-bit division is slow (before Ice Lake), the first 4 billion packets of a flow need none. */
	if (n >> 32)
		return n % count;
	return (__u32)n % count;
}

static __always_inline __u32 random_choice(__u32 hash, __u64 n, __u32 count)
{
	return scaled(mix64(((__u64)hash << 32) + (n + 1) * MIX_0) >> 32, count);
}

#endif
