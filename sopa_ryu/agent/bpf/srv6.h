/*
 * Lists of uSIDs (docs/srv6.md): the outer IPv6 header whose destination is the list of a packet's path (RFC 9800, H.Encaps.Red without a
 * routing header), probes that take one, and routers' ICMPv6 errors about them.
 */
#ifndef SOPA_SRV6_H
#define SOPA_SRV6_H

#include <linux/bpf.h>
#include <linux/icmpv6.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "choose.h"
#include "label.h"
#include "maps.h"
#include "mtu.h"
#include "packet.h"
#include "probe.h"

/* uSIDs of switches, as in topologies/srv6.py. */
#define EDGE_USID 0x1000
#define AGGREGATION_USID 0x4000
#define CORE_USID 0x8000
#define POD_SHIFT 6
#define CORE_SHIFT 8

#define OUTER_BYTES sizeof(struct ipv6hdr)
#define HOP_LIMIT 64
#define AF_INET 2
#define PATH_MARK 0x534f0000 /* above the two bytes of a label; ANSWER_MARK's name no uplink that has a uSID */
#define GATEWAY 1 /* the last number of a rack's gateway */
#define DSCP 0xfc

struct secret {
	__be32 words[2];
};

/*
 * The last 64 bits of the outer source: random in each run of an agent. Nobody sees them but the routers of a path, as the last one takes
 * the header off; so an ICMPv6 error to this address is a router's.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct secret);
} outer_secret SEC(".maps");

/* What a router says of a list: `RouterError` in kernel/own_traffic.py. */
struct router_error {
	__be16 router; /* its uSID; 0: the host's own edge switch, which may speak by another address */
	__be16 next; /* the list's first uSID there */
	__u8 type;
	__u8 unused[3];
	__be32 parameter; /* of ICMPV6_PKT_TOOBIG: the MTU */
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} router_errors SEC(".maps");

/* What of the inner packet the outer header repeats. */
struct inner {
	__u8 is_ipv6;
	__u8 class;
	__u32 flow_label;
};

/* Reads what the outer header repeats, and the `flags` of `encapsulate`; returns LABELLED, or why the packet gets no outer header. */
static __always_inline enum reason read_inner(
	struct __sk_buff *skb, const struct place *at, const struct flow_key *key, __u32 hash, struct inner *to, __u64 *flags)
{
	__u32 bytes = skb->len - at->l3, first; /* of a burst: of its largest packet */
	__be32 copy, *word = header_at(skb, at->l3, sizeof(copy));
	__u8 doff;

	if (!word) {
		if (bpf_skb_load_bytes(skb, at->l3, &copy, sizeof(copy)))
			return MALFORMED;
		word = &copy;
	}
	first = bpf_ntohl(*word);
	to->is_ipv6 = !!(key->proto & IPV6_KEY);
	to->class = first >> (to->is_ipv6 ? 20 : 16);
	to->flow_label = (to->is_ipv6 ? first : hash) & 0xfffff;
	if (skb->gso_size) {
		bytes = at->l4 - at->l3 + sizeof(struct udphdr) + skb->gso_size;
		if (protocol_of(key) == IPPROTO_TCP) {
			if (bpf_skb_load_bytes(skb, at->l4 + 12, &doff, sizeof(doff)))
				return MALFORMED;
			bytes += (doff >> 4) * 4 - sizeof(struct udphdr);
		}
	}
	*flags = BPF_F_ADJ_ROOM_FIXED_GSO;
	if (fits(bytes + OUTER_BYTES))
		return LABELLED;
	*flags = 0; /* the kernel cuts a burst into packets that are smaller by as much */
	return skb->gso_size && protocol_of(key) == IPPROTO_TCP ? LABELLED : TOO_BIG;
}

/*
 * Writes the destination: block, aggregation, core and edge switch of a path. Nonzero for a path inside the rack, where there is nothing to
 * choose.
 */
static __always_inline int write_list(__be32 *to, const struct srv6_word *own, __u8 up1, __u8 up2, __u8 pod, __u8 edge)
{
	__u32 last = EDGE_USID | pod << POD_SHIFT | edge, first = AGGREGATION_USID | own->pod << POD_SHIFT | up1;

	if (up1 == UNUSED_HOP)
		return -1;
	to[0] = bpf_htonl(own->block);
	to[1] = bpf_htonl(first << 16 | (up2 == UNUSED_HOP ? last : CORE_USID | up1 << CORE_SHIFT | up2));
	to[2] = up2 == UNUSED_HOP ? 0 : bpf_htonl(last << 16);
	to[3] = 0;
	return 0;
}

/*
 * Opens room behind the Ethernet header, and writes the outer header; `flags` say what becomes of a burst. Its source is of the prefix of
 * this host's edge switch, so that routers that check sources find a route to it.
 */
static __always_inline int encapsulate(
	struct __sk_buff *skb, const struct srv6_word *own, const struct inner *of, const __be32 *list, __u64 flags)
{
	__u32 bytes = skb->len - ETH_HLEN, zero = 0;
	struct secret *secret = bpf_map_lookup_elem(&outer_secret, &zero);
	__be32 *to;
	void *type;

	if (!secret || bpf_skb_adjust_room(skb, OUTER_BYTES, BPF_ADJ_ROOM_MAC, flags | BPF_F_ADJ_ROOM_ENCAP_L3_IPV6))
		return -1;
	/* what has been opened is in the linear part: written directly, as bpf_skb_store_bytes takes a tenth of this program's time */
	type = (void *)(long)skb->data + 2 * ETH_ALEN;
	to = type + sizeof(__be16);
	if ((void *)to + OUTER_BYTES > (void *)(long)skb->data_end)
		return -1;
	*(__be16 *)type = bpf_htons(ETH_P_IPV6);
	/*
	 * Its ECN field is Not-ECT, the mode of a tunnel whose end is not known to hand on marks (RFC 6040, section 4.1): Linux' does not.
	 * A router then drops what it would mark.
	 */
	to[0] = bpf_htonl(6U << 28 | (__u32)(of->class & DSCP) << 20 | of->flow_label);
	to[1] = bpf_htonl((bytes > 0xffff ? 0 : bytes) << 16 | (of->is_ipv6 ? IPPROTO_IPV6 : IPPROTO_IPIP) << 8 | HOP_LIMIT);
	to[2] = bpf_htonl(own->block);
	to[3] = bpf_htonl((EDGE_USID | own->pod << POD_SHIFT | own->edge) << 16 | own->number);
	to[4] = secret->words[0];
	to[5] = secret->words[1];
#pragma unroll
	for (int i = 0; i < 4; i++)
		to[6 + i] = list[i];
	return 0;
}

/* Puts a packet into an outer header with the list of its path, but inside the rack; returns nonzero if it cannot. */
static __always_inline int put_into(struct __sk_buff *skb, const struct srv6_word *own, const struct inner *of, const struct flow_key *key,
				    const struct path_word *path, __u64 flags)
{
	__u8 pod = leaves(path) ? path->gateway[3] : key->daddr >> 16, edge = leaves(path) ? path->gateway[4] : key->daddr >> 8;
	__be32 list[4];

	return !write_list(list, own, path->up1, path->up2, pod, edge) && encapsulate(skb, own, of, list, flags);
}

/* This host's word of the carrier; null with another one. */
static __always_inline struct srv6_word *by_lists(void *table)
{
	struct srv6_word *own = table ? word(table, SRV6_WORD) : (void *)0;

	return own && own->block ? own : (void *)0;
}

/*
 * A probe and an answer have the label of the `mac` carrier (packet_socket.py, sopa_probe.c), and no router's Ethernet address. The kernel
 * finds that, and shows the packet to this program again; its mark has the path meanwhile.
 */
static __always_inline int find_router(struct __sk_buff *skb)
{
	struct bpf_redir_neigh router = { .nh_family = AF_INET };
	void *table = table_in_force();
	struct srv6_word *own = by_lists(table);
	struct fabric_word *fabric = table ? word(table, FABRIC_WORD) : (void *)0;
	struct label label;

	if (!own || !fabric || bpf_skb_load_bytes(skb, ETH_ALEN + 2, &label, sizeof(label)))
		return TC_ACT_SHOT;
	if (label.type != OPTION_TYPE || label.length != OPTION_LENGTH) /* another one's mark */
		return TC_ACT_UNSPEC;
	skb->mark = PATH_MARK | label.up1 << 8 | label.up2;
	router.ipv4_nh = bpf_htonl(fabric->network | own->pod << 16 | own->edge << 8 | GATEWAY);
	return bpf_redirect_neigh(skb->ifindex, &router, sizeof(router), 0);
}

/* The path of the mark becomes a list. */
static __always_inline int send_probe(struct __sk_buff *skb)
{
	struct inner inner = { .class = PROBE_TOS };
	struct srv6_word *own = by_lists(table_in_force());
	__u8 up1 = skb->mark >> 8, up2 = skb->mark;
	__be32 list[4], daddr;

	if (!own || bpf_skb_load_bytes(skb, ETH_HLEN + __builtin_offsetof(struct iphdr, daddr), &daddr, sizeof(daddr)))
		return TC_ACT_SHOT;
	daddr = bpf_ntohl(daddr);
	if (write_list(list, own, up1, up2, daddr >> 16, daddr >> 8))
		return TC_ACT_UNSPEC;
	return encapsulate(skb, own, &inner, list, 0) ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

/* Nonzero for a probe or an answer of this host; `carry_probe` sends it on. */
static __always_inline int is_carried(struct __sk_buff *skb)
{
	return skb->mark == ANSWER_MARK || (skb->mark & ~0xffffU) == PATH_MARK;
}

static __always_inline int carry_probe(struct __sk_buff *skb)
{
	return skb->mark == ANSWER_MARK ? find_router(skb) : send_probe(skb);
}

/* -- tc ingress ------------------------------------------------------------------------------------------------------------------ */

/* An ICMPv6 error, and the beginning of the packet that it is about. */
struct error_packet {
	struct ipv6hdr ip;
	struct icmp6hdr icmp;
	struct ipv6hdr about;
};

/* At tc ingress: the verdict of a packet to the outer source, for the agent or nobody; TC_ACT_UNSPEC for all others. */
static __always_inline int take_router_error(struct __sk_buff *skb)
{
	struct router_error record = {};
	struct error_packet packet;
	struct srv6_word *own;
	__u32 zero = 0;
	struct secret *secret;

	if (skb->protocol != bpf_htons(ETH_P_IPV6) || bpf_skb_load_bytes(skb, ETH_HLEN, &packet.ip, sizeof(packet.ip)) ||
	    packet.ip.nexthdr != IPPROTO_ICMPV6)
		return TC_ACT_UNSPEC;
	secret = bpf_map_lookup_elem(&outer_secret, &zero);
	own = by_lists(table_in_force());
	if (!secret || !own || packet.ip.daddr.s6_addr32[0] != bpf_htonl(own->block))
		return TC_ACT_UNSPEC;
	/* Nobody's address on this host: what is not a router's message about a list would be forwarded, if this host forwards. */
	if (packet.ip.daddr.s6_addr32[2] != secret->words[0] || packet.ip.daddr.s6_addr32[3] != secret->words[1])
		return TC_ACT_SHOT;
	if (bpf_skb_load_bytes(skb, ETH_HLEN, &packet, sizeof(packet)) || packet.about.daddr.s6_addr32[0] != bpf_htonl(own->block))
		return TC_ACT_SHOT;
	if (packet.ip.saddr.s6_addr32[0] == bpf_htonl(own->block))
		record.router = packet.ip.saddr.s6_addr16[2];
	record.next = packet.about.daddr.s6_addr16[2];
	record.type = packet.icmp.icmp6_type;
	record.parameter = packet.icmp.icmp6_mtu;
	bpf_ringbuf_output(&router_errors, &record, sizeof(record), 0); /* without room: there are enough of them */
	return TC_ACT_SHOT;
}

#endif
