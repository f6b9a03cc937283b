/* Packets that this host's TCP receives: the option read, and the window lowered. */
#ifndef SOPA_MCS_INGRESS_H
#define SOPA_MCS_INGRESS_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "maps.h"
#include "mcs.h"
#include "mcs_connections.h"
#include "mcs_packet.h"

/* The source port as the remote's TCP has sent it. */
static __always_inline int restore_port(struct __sk_buff *skb, struct parsed *of, __u32 c)
{
	__be16 port = bpf_htons(bpf_ntohs(of->source_port) + c);

	if (replace_short(skb, of, 0, of->source_port, port))
		return -1;
	of->key.ports = (of->key.ports & 0xffff0000) | bpf_ntohs(port);
	return 0;
}

static __always_inline void lower_window(struct __sk_buff *skb, const struct parsed *of, __u32 allowed)
{
	__be16 old;

	if (bpf_skb_load_bytes(skb, of->l4 + WINDOW, &old, sizeof(old)) || bpf_ntohs(old) <= allowed)
		return;
	if (!replace_short(skb, of, WINDOW, old, bpf_htons(allowed)))
		count(WINDOW_LOWERED);
}

static __always_inline enum reason take(struct __sk_buff *skb)
{
	struct mcs_settings *set = settings();
	struct mcs_connection *its;
	__u32 channels, c, gsn, lsn, received, allowed;
	__u64 now;
	struct parsed of;
	struct mco mco;
	__u8 ends;

	if (!set || !parse(skb, set, &of, 0))
		return REASONS;
	channels = set->channels;
	if (channels < 2 || channels > MAX_CHANNELS)
		return REASONS;
	if (of.syn) {
		if (runs_mcs(of.key.remote) &&
		    (bpf_map_lookup_elem(&mcs_scales, &of.key) || within_share(of.key.remote)))
			note_scale(skb, &of, 0);
		return REASONS;
	}
	if (!(of.flags_byte & SCATTERED_BIT)) {
		if (of.rst)
			bpf_map_delete_elem(&mcs_connections, &of.key);
		return REASONS;
	}
	if (!runs_mcs(of.key.remote))
		return MCO_UNKNOWN;
	if (of.header < sizeof(struct tcphdr) + MCO_BYTES)
		return MCO_MALFORMED;
	if (bpf_skb_load_bytes(skb, of.l4 + of.header - MCO_BYTES, &mco, sizeof(mco)))
		return MCO_MALFORMED;
	if (mco.kind != MCO_KIND || mco.length != MCO_BYTES || mco.channel >> 4 != MCO_VERSION)
		return MCO_MALFORMED;
	c = mco.channel & 15;
	if (set->kind == BY_PORTS && c && restore_port(skb, &of, c))
		return NOT_WRITABLE;
	if (of.rst) {
		bpf_map_delete_elem(&mcs_connections, &of.key);
		return MCO_TAKEN;
	}
	its = connection(skb, &of, channels, of.segment.has_ack ? of.segment.ack : 0);
	if (!its)
		return MCO_TAKEN;
	gsn = bpf_ntohl(mco.gsn);
	lsn = bpf_ntohl(mco.lsn);
	/* Segmentation copies the option: only the first segment's count is news (footnote 3). */
	received = of.segment.seq == gsn ? mco.received : 0;

	now = bpf_ktime_get_ns();
	bpf_spin_lock(&its->lock);
	its->seen = now;
	if (of.segment.size)
		receive_data(its, &of.segment, c, lsn + of.segment.seq - gsn, of.ecn == CE);
	receive_feedback(its, &of.segment, bpf_ntohs(mco.received_ce), bpf_ntohs(mco.received_on), received, channels);
	allowed = allowed_window(its);
	if (of.segment.fin)
		its->flags |= CLOSED_IN;
	ends = is_over(its, &of.segment);
	bpf_spin_unlock(&its->lock);

	if (ends)
		bpf_map_delete_elem(&mcs_connections, &of.key);
	if (of.segment.has_ack && !(set->without & WITHOUT_WINDOW))
		lower_window(skb, &of, allowed);
	return MCO_TAKEN;
}

#endif
