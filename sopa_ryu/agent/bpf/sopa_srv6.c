/*
 * The `srv6` carrier (docs/srv6.md) at tc egress of a host's interface: puts a packet into an outer IPv6 header whose destination is the uSID
 * list of its path. The last router takes the header off. A packet that cannot be encapsulated goes out unchanged, and is counted.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "ack.h"
#include "burst.h"
#include "choose.h"
#include "maps.h"
#include "packet.h"
#include "sent.h"
#include "srv6.h"

static __always_inline enum reason label(struct __sk_buff *skb, __u32 *device)
{
	__u32 segments = skb->gso_segs;
	struct path_word *path;
	struct srv6_word *own;
	struct choice choice = {};
	struct flow_key key = {};
	struct inner inner;
	enum reason reason;
	struct place at = {};
	__u64 flags;

	path = path_in_burst(skb, &key, &at, &choice);
	if (!path) {
		reason = read_flow(skb, &key, &at);
		if (reason != LABELLED)
			return reason;
		reason = consider(&key, is_forwarded(skb, protocol_of(&key)), &choice);
		if (reason != LABELLED)
			return reason;
		if (at.tagged || skb->vlan_present) /* routers of the fabric know no VLAN */
			return NOT_IPV4;
	}
	own = by_lists(choice.table);
	if (!own)
		return NO_TABLE;
	if (!path) {
		if (is_spare_ack(skb, at.l4, &key, &choice))
			return ACK_FILTERED;
		*device = cut(skb, &at, &key, &choice);
		if (*device)
			return CUT;
	}
	reason = read_inner(skb, &at, &key, choice.hash, &inner, &flags);
	if (reason != LABELLED)
		return reason;
	if (!path) {
		path = next_path(&choice, &key, skb->len);
		if (!path)
			return NO_PATH;
		note_sent(skb, at.l4, &key, &choice, path);
	}
	if (put_into(skb, own, &inner, &key, path, flags))
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

	if (is_carried(skb))
		return carry_probe(skb);
	return verdict_of(label(skb, &device), device);
}

char LICENSE[] SEC("license") = "Apache-2.0"; /* no helper in use asks for the GPL */
