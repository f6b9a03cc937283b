/* Packets that this host's TCP sends: the option filled in, the channel, and with paths the label. */
#ifndef SOPA_MCS_EGRESS_H
#define SOPA_MCS_EGRESS_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "choose.h"
#include "busy.h"
#include "label.h"
#include "maps.h"
#include "mcs.h"
#include "mcs_connections.h"
#include "mcs_packet.h"
#include "srv6.h"

/* Removes the SACK blocks, or all but the first `left`: NOPs instead, on `bytes` bytes, a multiple of 4 up to 20. */
static __always_inline int blank(struct __sk_buff *skb, const struct parsed *of, __u32 bytes)
{
	__u32 old[5] = {}, nops[5] = { NOPS, NOPS, NOPS, NOPS, NOPS };

	if (bytes < 4 || bytes > sizeof(old))
		return 0;
	bytes &= 28;
	if (bpf_skb_load_bytes(skb, of->l4 + of->sack_at, old, bytes))
		return -1;
	return replace(skb, of, of->sack_at, old, nops, bytes);
}

/*
 * Makes room for an option in a header that SACK has filled. It gives up two blocks, the oldest, or all if the sender's TCP must not see any.
 * Returns 0 if there is room now.
 */
static __always_inline int make_room(struct __sk_buff *skb, const struct parsed *of, int without)
{
	__be32 old, new;

	if (without)
		return blank(skb, of, 4 + 8 * of->blocks - MCO_BYTES);
	if (of->blocks < 3)
		return -1;
	old = bpf_htonl(SACK_WORD | (2 + 8 * of->blocks));
	new = bpf_htonl(SACK_WORD | (2 + 8 * (of->blocks - 2)));
	return replace(skb, of, of->sack_at, &old, &new, sizeof(new));
}

/* Puts a packet, or a burst, into an outer header with the list of a path; returns nonzero if it goes without. */
static __always_inline int wrap(struct __sk_buff *skb, const struct parsed *of, const struct srv6_word *own, __u32 hash, struct path_word *path)
{
	__u32 remote = of->key.remote, bytes = skb->len - ETH_HLEN;
	struct inner inner = { .is_ipv6 = !!(of->key.proto & IPV6_KEY), .flow_label = hash & 0xfffff };
	__u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO;
	__be32 list[4];

	if (skb->vlan_present) { /* routers of the fabric know no VLAN */
		count(NOT_IPV4);
		return -1;
	}
	inner.class = of->first >> (inner.is_ipv6 ? 4 : 0);
	if (inner.is_ipv6)
		inner.flow_label = read_word(skb, ETH_HLEN) & 0xfffff;
	if (skb->gso_size)
		bytes = of->l4 - ETH_HLEN + of->header + skb->gso_size;
	if (!fits(bytes + OUTER_BYTES)) {
		if (!skb->gso_size) {
			count(TOO_BIG);
			return -1;
		}
		flags = 0; /* the kernel cuts the burst into packets that are smaller by as much */
	}
	if (!write_list(list, own, path->up1, path->up2, remote >> 16, remote >> 8) && encapsulate(skb, own, &inner, list, flags)) {
		count(NOT_WRITABLE);
		return -1;
	}
	return 0;
}

/* Writes the label, or the list, of channel c's path. Without a path the packet goes as switches hash it. */
static __always_inline void label_channel(struct __sk_buff *skb, const struct parsed *of, __u32 c)
{
	const struct connection_key *key = &of->key;
	struct flow_key flow = { key->local, key->remote, key->ports, key->proto };
	__u32 at;
	struct path_word *path;
	struct choice choice;
	enum reason reason = NO_TABLE;

	choice.table = table_in_force();
	if (choice.table)
		reason = find_candidates(&flow, &choice);
	if (reason != LABELLED) {
		count(reason);
		return;
	}
	at = (scaled(choice.hash, choice.count) + c) % choice.count;
	path = word(choice.table, choice.first + at);
	if (!path) {
		count(NO_PATH);
		return;
	}
	__u8 source[ETH_ALEN] = { CARRIER_PREFIX_0, CARRIER_PREFIX_1, OPTION_TYPE, OPTION_LENGTH, path->up1, path->up2 };
	struct srv6_word *own = by_lists(choice.table);
	__u32 segments = skb->gso_segs;

	if (own) {
		if (wrap(skb, of, own, choice.hash, path))
			return;
	} else if (bpf_skb_store_bytes(skb, ETH_ALEN, source, sizeof(source), 0)) {
		count(NOT_WRITABLE);
		return;
	}
	count(LABELLED);
	count_path(path->up1, path->up2);
	if (choice.count > 1)
		note_busy(key->remote);
	if (segments > 1)
		count(GSO);
}

/* ECT(0), so that a congested port marks the packet rather than drop it. A connection that uses ECN itself has set it. */
static __always_inline void allow_marks(struct __sk_buff *skb, const struct parsed *of)
{
	__be16 old = bpf_htons(of->first), new = bpf_htons(of->first | ECT_0 << of->ecn_bit);

	if (of->key.proto & IPV6_KEY || !bpf_l3_csum_replace(skb, ETH_HLEN + 10, old, new, sizeof(new)))
		bpf_skb_store_bytes(skb, ETH_HLEN, &new, sizeof(new), 0);
}

/* What is written into a packet, found under the connection's lock. */
struct written {
	struct mco mco;
	enum verdict verdict;
	__u8 ends; /* the connection */
};

static __always_inline void advance(
	struct mcs_connection *its, const struct parsed *of, const struct mcs_settings *set, int room, struct written *out)
{
	int filter = !(set->without & WITHOUT_FILTER);
	const struct segment *sent = &of->segment;
	__u32 channels = set->channels, lsn;
	__u64 now = bpf_ktime_get_ns();

	bpf_spin_lock(&its->lock);
	its->seen = now;
	out->verdict = send_ack(its, sent, filter, now / 1000, set->patience_us ?: PATIENCE_US);
	/* with two blocks of SACK that have to stay, there is none */
	if (out->verdict != DROP && (room || out->verdict == SEND_WITHOUT_SACK || of->blocks > 2)) {
		lsn = send_on_channel(its, sent, channels);
		out->mco.received_ce = bpf_htons(its->received_ce);
		out->mco.received_on = bpf_htons(its->received_on);
		out->mco.received = its->received;
		out->mco.channel = its->channel | MCO_VERSION << 4;
		out->mco.gsn = bpf_htonl(sent->seq);
		out->mco.lsn = bpf_htonl(lsn);
		its->received_ce = 0;
		its->received_on = 0;
		its->received = 0;
	}
	if (sent->fin)
		its->flags |= CLOSED_OUT;
	out->ends = out->verdict != DROP && is_over(its, sent);
	bpf_spin_unlock(&its->lock);
}

static __always_inline enum reason scatter(struct __sk_buff *skb)
{
	struct written out = { { MCO_KIND, MCO_BYTES } };
	struct mcs_settings *set = settings();
	struct mcs_connection *its;
	__u32 channels, c, mco_at, sack_end, full;
	struct parsed of;
	struct mco *mco;
	int room;

	if (!set || !parse(skb, set, &of, 1))
		return UNSCATTERED;
	channels = set->channels;
	if (channels < 2 || channels > MAX_CHANNELS)
		return UNSCATTERED;
	if (of.syn) {
		if (runs_mcs(of.key.remote))
			note_scale(skb, &of, 1);
		return UNSCATTERED;
	}
	if (of.rst) { /* most have no placeholder */
		bpf_map_delete_elem(&mcs_connections, &of.key);
		return UNSCATTERED;
	}
	read_sack(skb, &of);
	sack_end = of.blocks ? of.sack_at + 4 + 8 * of.blocks : 0; /* numbers in it may look like an option */
	mco_at = of.header - MCO_BYTES;
	mco = header_at(skb, of.l4 + mco_at, sizeof(*mco));
	room = of.header >= sizeof(struct tcphdr) + MCO_BYTES && mco && mco->kind == MCO_KIND &&
	       mco->length == MCO_BYTES && !(mco->channel >> 4) && sack_end <= of.header - MCO_BYTES;
	full = of.segment.has_ack && of.blocks > 1 && sack_end == of.header && of.header > MAX_TCP_HEADER - MCO_BYTES;
	if ((!room && !full) || !is_scattered_to(of.key.remote))
		return UNSCATTERED;
	its = room ? connection((void *)0, &of, channels, of.segment.seq) : bpf_map_lookup_elem(&mcs_connections, &of.key);
	if (!its)
		return UNSCATTERED;
	advance(its, &of, set, room, &out);
	if (out.ends)
		bpf_map_delete_elem(&mcs_connections, &of.key);
	if (out.verdict == DROP)
		return ACK_FILTERED;
	if (!(out.mco.channel >> 4))
		return UNSCATTERED;
	c = out.mco.channel & 15;

	if (full ? make_room(skb, &of, out.verdict == SEND_WITHOUT_SACK) :
		   out.verdict == SEND_WITHOUT_SACK && blank(skb, &of, 4 + 8 * of.blocks))
		return NOT_WRITABLE;

	struct mco old;
	__be32 flags[2];

	if (bpf_skb_load_bytes(skb, of.l4 + mco_at, &old, sizeof(old)) || replace(skb, &of, mco_at, &old, &out.mco, sizeof(old)))
		return NOT_WRITABLE;
	if (bpf_skb_load_bytes(skb, of.l4 + FLAGS, &flags[0], sizeof(flags[0])))
		return NOT_WRITABLE;
	flags[1] = flags[0] | bpf_htonl(SCATTERED_BIT << 24);
	if (replace(skb, &of, FLAGS, &flags[0], &flags[1], sizeof(flags[0])))
		return NOT_WRITABLE;
	if (of.segment.size && !of.ecn)
		allow_marks(skb, &of);
	if (set->kind == BY_PATHS) {
		label_channel(skb, &of, c);
	} else if (c && replace_short(skb, &of, 0, of.source_port, bpf_htons(bpf_ntohs(of.source_port) - c))) {
		return NOT_WRITABLE;
	}
	return SCATTERED;
}

#endif
