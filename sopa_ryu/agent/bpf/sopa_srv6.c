/*
 * The `srv6` carrier (docs/srv6.md) at tc egress of a host's interface: puts a packet into an outer IPv6 header whose destination is the uSID
 * list of its path (RFC 9800, H.Encaps.Red without a routing header). The last router takes the header off. It drops nothing: a packet that
 * cannot be encapsulated goes out unchanged, and is counted. At tc ingress: takes routers' ICMPv6 errors about lists, for the agent.
 */
#include <linux/bpf.h>
#include <linux/icmpv6.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "choose.h"
#include "label.h"
#include "maps.h"
#include "mtu.h"
#include "packet.h"
#include "probe.h"
#include "sent.h"

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

/* From the Ethernet type to the end of the outer header. */
struct outer {
	__u16 align;
	__be16 protocol;
	__be32 words[10]; /* an IPv6 header */
};

/* What of the inner packet the outer header repeats. */
struct inner {
	__u8 is_ipv6;
	__u8 class;
	__u32 flow_label;
};

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
	struct outer outer;

	if (!secret)
		return -1;

	outer.protocol = bpf_htons(ETH_P_IPV6);
	/*
	 * Its ECN field is Not-ECT, the mode of a tunnel whose end is not known to hand on marks (RFC 6040, section 4.1): Linux' does not.
	 * A router then drops what it would mark.
	 */
	outer.words[0] = bpf_htonl(6U << 28 | (__u32)(of->class & DSCP) << 20 | of->flow_label);
	outer.words[1] = bpf_htonl((bytes > 0xffff ? 0 : bytes) << 16 | (of->is_ipv6 ? IPPROTO_IPV6 : IPPROTO_IPIP) << 8 | HOP_LIMIT);
	outer.words[2] = bpf_htonl(own->block);
	outer.words[3] = bpf_htonl((EDGE_USID | own->pod << POD_SHIFT | own->edge) << 16 | own->number);
	outer.words[4] = secret->words[0];
	outer.words[5] = secret->words[1];
	__builtin_memcpy(outer.words + 6, list, sizeof(struct in6_addr));
	if (bpf_skb_adjust_room(skb, OUTER_BYTES, BPF_ADJ_ROOM_MAC, flags | BPF_F_ADJ_ROOM_ENCAP_L3_IPV6))
		return -1;
	return bpf_skb_store_bytes(skb, 2 * ETH_ALEN, &outer.protocol, sizeof(outer.protocol) + sizeof(outer.words), 0);
}

/* Reads what the outer header repeats; returns the bytes of the packet, of a burst those of its largest packet. */
static __always_inline __u32 read_inner(struct __sk_buff *skb, const struct place *at, const struct flow_key *key, __u32 hash, struct inner *to)
{
	__u32 bytes = skb->len - at->l3;
	__be32 first;
	__u8 doff;

	if (bpf_skb_load_bytes(skb, at->l3, &first, sizeof(first)))
		return 0;
	to->is_ipv6 = !!(key->proto & IPV6_KEY);
	to->class = bpf_ntohl(first) >> (to->is_ipv6 ? 20 : 16);
	to->flow_label = (to->is_ipv6 ? bpf_ntohl(first) : hash) & 0xfffff;
	if (!skb->gso_size)
		return bytes;
	bytes = at->l4 - at->l3 + sizeof(struct udphdr) + skb->gso_size;
	if (protocol_of(key) != IPPROTO_TCP)
		return bytes;
	if (bpf_skb_load_bytes(skb, at->l4 + 12, &doff, sizeof(doff)))
		return 0;
	return bytes - sizeof(struct udphdr) + (doff >> 4) * 4;
}

static __always_inline enum reason label(struct __sk_buff *skb, __u32 *device)
{
	__u32 segments = skb->gso_segs, bytes;
	struct path_word *path;
	struct srv6_word *own;
	struct choice choice;
	struct flow_key key;
	struct inner inner;
	enum reason reason;
	struct place at;
	__u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO;
	__be32 list[4];
	__u8 pod, edge;

	reason = read_flow(skb, &key, &at);
	if (reason != LABELLED)
		return reason;
	reason = consider(&key, is_forwarded(skb), &choice);
	if (reason != LABELLED)
		return reason;
	if (at.tagged || skb->vlan_present) /* routers of the fabric know no VLAN */
		return NOT_IPV4;
	own = word(choice.table, SRV6_WORD);
	if (!own || !own->block)
		return NO_TABLE;
	*device = cutting_device(skb, &key, &choice);
	if (*device)
		return CUT;
	bytes = read_inner(skb, &at, &key, choice.hash, &inner);
	if (!bytes)
		return MALFORMED;
	if (!fits(bytes + OUTER_BYTES)) {
		if (!skb->gso_size || protocol_of(&key) != IPPROTO_TCP)
			return TOO_BIG;
		flags = 0; /* the kernel cuts the burst into packets that are smaller by as much */
	}
	path = next_path(&choice, skb->len);
	if (!path)
		return NO_PATH;
	note_sent(skb, at.l4, &key, &choice, path);
	pod = leaves(path) ? path->gateway[3] : key.daddr >> 16;
	edge = leaves(path) ? path->gateway[4] : key.daddr >> 8;
	if (!write_list(list, own, path->up1, path->up2, pod, edge) && encapsulate(skb, own, &inner, list, flags))
		return NOT_WRITABLE;
	count_path(path->up1, path->up2);
	if (!choice.sprayed)
		count(HASHED);
	else if (segments > 1)
		count(GSO);
	return LABELLED;
}

/*
 * A probe and an answer have the label of the `mac` carrier (packet_socket.py, sopa_probe.c), and no router's Ethernet address. The kernel
 * finds that, and shows the packet to this program again; its mark has the path meanwhile.
 */
static __always_inline int find_router(struct __sk_buff *skb)
{
	struct bpf_redir_neigh router = { .nh_family = AF_INET };
	void *table = table_in_force();
	struct srv6_word *own = table ? word(table, SRV6_WORD) : (void *)0;
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
	void *table = table_in_force();
	struct srv6_word *own = table ? word(table, SRV6_WORD) : (void *)0;
	__u8 up1 = skb->mark >> 8, up2 = skb->mark;
	__be32 list[4], daddr;

	if (!own || bpf_skb_load_bytes(skb, ETH_HLEN + __builtin_offsetof(struct iphdr, daddr), &daddr, sizeof(daddr)))
		return TC_ACT_SHOT;
	daddr = bpf_ntohl(daddr);
	if (write_list(list, own, up1, up2, daddr >> 16, daddr >> 8))
		return TC_ACT_UNSPEC;
	return encapsulate(skb, own, &inner, list, 0) ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

/* -- tc ingress ------------------------------------------------------------------------------------------------------------------ */

/* An ICMPv6 error, and the beginning of the packet that it is about. */
struct error_packet {
	struct ipv6hdr ip;
	struct icmp6hdr icmp;
	struct ipv6hdr about;
};

SEC("tc")
int sopa_srv6_in(struct __sk_buff *skb)
{
	struct router_error record = {};
	struct error_packet packet;
	struct srv6_word *own;
	__u32 zero = 0;
	struct secret *secret;
	void *table;

	if (skb->protocol != bpf_htons(ETH_P_IPV6) || bpf_skb_load_bytes(skb, ETH_HLEN, &packet.ip, sizeof(packet.ip)) ||
	    packet.ip.nexthdr != IPPROTO_ICMPV6)
		return TC_ACT_UNSPEC;
	secret = bpf_map_lookup_elem(&outer_secret, &zero);
	table = table_in_force();
	own = table ? word(table, SRV6_WORD) : (void *)0;
	if (!secret || !own || !own->block || packet.ip.daddr.s6_addr32[0] != bpf_htonl(own->block))
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

SEC("tc")
int sopa_srv6(struct __sk_buff *skb)
{
	__u32 device = 0;
	enum reason reason;

	if (skb->mark == ANSWER_MARK)
		return find_router(skb);
	if ((skb->mark & ~0xffffU) == PATH_MARK)
		return send_probe(skb);
	reason = label(skb, &device);
	count(reason);
	if (reason == CUT)
		return bpf_redirect(device, 0);
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Apache-2.0"; /* no helper in use asks for the GPL */
