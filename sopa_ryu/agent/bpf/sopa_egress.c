/*
 * tc egress of a host's interface: writes the next path of the packet's flow, as the SOPA label, into the Ethernet source address (the
 * `mac` carrier, docs/wire-format.md). A packet that cannot be labelled goes out unchanged, and is counted.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "ack.h"
#include "burst.h"
#include "choose.h"
#include "label.h"
#include "maps.h"
#include "packet.h"
#include "probe.h"
#include "sent.h"
#include "spread.h"

/* Writes the label of a path. A store by helper: a direct one makes the kernel copy cloned packets first, and drop them if it cannot. */
static __always_inline enum reason write(struct __sk_buff *skb, const struct path_word *path)
{
	__u8 source[ETH_ALEN] = { CARRIER_PREFIX_0, CARRIER_PREFIX_1, OPTION_TYPE, OPTION_LENGTH, path->up1, path->up2 };

	if (bpf_skb_store_bytes(skb, ETH_ALEN, source, sizeof(source), 0))
		return NOT_WRITABLE;
	if (leaves(path) && bpf_skb_store_bytes(skb, 0, path->gateway, sizeof(path->gateway), 0))
		return NOT_WRITABLE;
	count_path(path->up1, path->up2);
	return LABELLED;
}

static __always_inline enum reason label(struct __sk_buff *skb, __u32 *device)
{
	__u32 segments = skb->gso_segs;
	struct flow_key key = {};
	struct choice choice = {};
	struct path_word *path;
	enum reason reason;
	struct place at = {};
	__u16 id;
	int base;

	path = path_in_burst(skb, &key, &at, &choice);
	if (path)
		return write(skb, path);
	reason = read_flow(skb, &key, &at);
	if (reason != LABELLED)
		return reason;
	reason = consider(&key, is_forwarded(skb, protocol_of(&key)), &choice);
	if (reason != LABELLED)
		return reason;
	if (is_spare_ack(skb, at.l4, &key, &choice))
		return ACK_FILTERED;
	base = spread_base(skb, at.l3, &key, &choice, &id);
	if (base >= 0) {
		__u8 spread[ETH_ALEN] = { CARRIER_PREFIX_0, CARRIER_PREFIX_1, OPTION_TYPE, OPTION_LENGTH, UNUSED_HOP, base };

		note_numbered(skb, at.l4, &choice, key.daddr, id);
		if (bpf_skb_store_bytes(skb, ETH_ALEN, spread, sizeof(spread), 0))
			return NOT_WRITABLE;
		count(SPREAD);
		return LABELLED;
	}
	*device = cut(skb, &at, &key, &choice);
	if (*device)
		return CUT;
	path = next_path(&choice, &key, skb->len);
	if (!path)
		return NO_PATH;
	note_sent(skb, at.l4, &key, &choice, path);
	reason = write(skb, path);
	if (reason != LABELLED)
		return reason;
	if (!choice.sprayed)
		count(HASHED);
	else if (segments > 1) /* one label for what will be several packets */
		count(GSO);
	return LABELLED;
}

SEC("tc")
int sopa_egress(struct __sk_buff *skb)
{
	__u32 device = 0;

	if (is_answer(skb))
		return TC_ACT_UNSPEC;
	return verdict_of(label(skb, &device), device);
}

char LICENSE[] SEC("license") = "Apache-2.0"; /* no helper in use asks for the GPL */
