/*
 * The `srv6` carrier (docs/srv6.md) at tc egress of a host's interface: puts a packet into an outer IPv6 header whose destination is the uSID
 * list of its path. The last router takes the header off. It drops nothing: a packet that cannot be encapsulated goes out unchanged, and is
 * counted.
 */
#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "choose.h"
#include "maps.h"
#include "packet.h"
#include "sent.h"
#include "srv6.h"

/* Reads what the outer header repeats; returns the bytes of the packet, of a burst those of its largest packet. */
static __always_inline __u32 read_inner(struct __sk_buff *skb, const struct place *at, const struct flow_key *key, __u32 hash, struct inner *to)
{
	__u32 bytes = skb->len - at->l3, first;
	__be32 copy, *word = header_at(skb, at->l3, sizeof(copy));
	__u8 doff;

	if (!word) {
		if (bpf_skb_load_bytes(skb, at->l3, &copy, sizeof(copy)))
			return 0;
		word = &copy;
	}
	first = bpf_ntohl(*word);
	to->is_ipv6 = !!(key->proto & IPV6_KEY);
	to->class = first >> (to->is_ipv6 ? 20 : 16);
	to->flow_label = (to->is_ipv6 ? first : hash) & 0xfffff;
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
	struct flow_key key = {};
	struct inner inner;
	enum reason reason;
	struct place at = {};
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
	own = by_lists(choice.table);
	if (!own)
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

SEC("tc")
int sopa_srv6_in(struct __sk_buff *skb)
{
	return take_router_error(skb);
}

SEC("tc")
int sopa_srv6(struct __sk_buff *skb)
{
	__u32 device = 0;
	enum reason reason;

	if (is_carried(skb))
		return carry_probe(skb);
	reason = label(skb, &device);
	count(reason);
	if (reason == CUT)
		return bpf_redirect(device, 0);
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Apache-2.0"; /* no helper in use asks for the GPL */
