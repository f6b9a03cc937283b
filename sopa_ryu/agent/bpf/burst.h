/*
 * The packets of a burst that was cut. The kernel cuts it, and sends its packets through this program, within the call that the burst came
 * by: what their paths are chosen from is found once, with the burst, and kept for them on the same processor.
 */
#ifndef SOPA_BURST_H
#define SOPA_BURST_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "choose.h"
#include "maps.h"
#include "packet.h"
#include "sent.h"

struct burst {
	__be32 ends[9]; /* ports, and the addresses of source and destination */
	__u32 left; /* packets still to come; what is left of a burst that never came, the next burst takes over */
	__u32 in_force; /* `turn`, when the candidates were found */
	__u32 at; /* the place of the next packet's path among them */
	__u32 first;
	__u32 count;
	__u32 hash; /* of the flow */
	__u32 daddr; /* as in the flow's key */
	__u32 proto;
	__u32 l4;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct burst);
} bursts SEC(".maps");

#define ENDS4 3 /* words of `ends` */
#define ENDS6 9

/* Reads who sends to whom, of TCP right behind an IP header without options or extensions; returns the words, 0 of anything else. */
static __always_inline __u32 read_ends(struct __sk_buff *skb, __be32 *ends)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ipv6hdr *ip6 = data + ETH_HLEN;
	struct iphdr *ip = data + ETH_HLEN;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if ((void *)(ip + 1) + sizeof(__be32) > end || ip->ihl != 5 || ip->protocol != IPPROTO_TCP ||
		    ip->frag_off & bpf_htons(IP_FRAGMENT_BITS))
			return 0;
		ends[0] = *(__be32 *)(ip + 1);
		ends[1] = ip->saddr;
		ends[2] = ip->daddr;
		return ENDS4;
	}
	if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if ((void *)(ip6 + 1) + sizeof(__be32) > end || ip6->nexthdr != IPPROTO_TCP)
			return 0;
		ends[0] = *(__be32 *)(ip6 + 1);
#pragma unroll
		for (int i = 0; i < 4; i++) {
			ends[1 + i] = ip6->saddr.s6_addr32[i];
			ends[5 + i] = ip6->daddr.s6_addr32[i];
		}
		return ENDS6;
	}
	return 0;
}

/* The number of a packet whose path is at this place among the candidates (`packet_number`). */
static __always_inline __u16 number_at(__u32 place, const struct choice *from)
{
	return (place + from->count - scaled(from->hash, BASES) % from->count) % from->count;
}

/*
 * Returns the device that cuts this burst into packets, or 0 if this is one, or bursts are not cut (`cutting_device`). Where its packets
 * take one path after the other, those are theirs from now on.
 */
static __always_inline __u32 cut(struct __sk_buff *skb, const struct place *at, const struct flow_key *key, const struct choice *from)
{
	__u32 device = cutting_device(skb, key, from), packets = skb->gso_segs, place;
	struct burst *its = word(&bursts, 0);
	struct path_word *path;

	if (!device || !its)
		return device;
	its->left = 0;
	if (from->policy != ROUND_ROBIN || !from->state || from->count < 2 || at->l3 != ETH_HLEN || !read_ends(skb, its->ends) ||
	    is_sent_again(skb, at->l4, from)) /* noted packet by packet */
		return device;
	place = round_robin(from->hash, __sync_fetch_and_add(&from->state->turns, packets), from->count);
	path = word(from->table, from->first + place);
	if (!path)
		return device;
	note_numbered(skb, at->l4, from, end_of(path, key->daddr), number_at(place, from));
	its->in_force = from->in_force;
	its->first = from->first;
	its->count = from->count;
	its->hash = from->hash;
	its->daddr = key->daddr;
	its->proto = key->proto;
	its->l4 = at->l4;
	its->at = place;
	its->left = packets;
	return device;
}

/*
 * Returns the path of a packet of the burst that was cut last on this processor, with what else a label may depend on; null for any other
 * packet.
 */
static __always_inline struct path_word *path_in_burst(
	struct __sk_buff *skb, struct flow_key *key, struct place *at, struct choice *from)
{
	__u32 *in_force = word(&turn, 0);
	struct burst *its = word(&bursts, 0);
	__be32 ends[ENDS6];
	struct path_word *path;
	__u32 words, differ;
	void *table;

	if (!its || !its->left || !in_force || its->in_force != *(volatile __u32 *)in_force || skb->gso_segs > 1)
		return (void *)0;
	words = read_ends(skb, ends);
	if (!words)
		return (void *)0;
	differ = (ends[0] ^ its->ends[0]) | (ends[1] ^ its->ends[1]) | (ends[2] ^ its->ends[2]);
	if (words == ENDS6) {
#pragma unroll
		for (int i = ENDS4; i < ENDS6; i++)
			differ |= ends[i] ^ its->ends[i];
	}
	if (differ)
		return (void *)0;
	table = word(&path_tables, its->in_force & 1);
	path = table ? word(table, its->first + its->at) : (void *)0;
	if (!path)
		return (void *)0;
	its->left--;
	its->at = its->at + 1 < its->count ? its->at + 1 : 0;
	key->daddr = its->daddr;
	key->proto = its->proto;
	at->l3 = ETH_HLEN;
	at->l4 = its->l4;
	from->table = table;
	from->hash = its->hash;
	from->sprayed = 1;
	return path;
}

#endif
