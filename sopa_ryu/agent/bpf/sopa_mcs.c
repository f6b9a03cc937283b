/*
 * Multi-Channel Scatter (docs/mcs.md): the packets of a TCP connection between two hosts that run it take several channels in turn. Linux
 * leaves room for the option in the header (sopa_mcs_ops); the programs at tc fill it in and read it, where it is.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "choose.h"
#include "label.h"
#include "maps.h"
#include "mcs.h"
#include "packet.h"

#define L4 (ETH_HLEN + sizeof(struct iphdr)) /* no IPv4 options: such packets pass as they are */
#define FLAGS_AT (L4 + 12)
#define WINDOW_AT (L4 + 14)
#define MAX_TCP_HEADER 60
#define ECN_BITS 3
#define ECT_0 2
#define CE 3
#define SACK_WORD 0x01010500 /* two NOPs, kind 5, and its length in the lowest byte: as Linux aligns it */
#define TIMESTAMP_WORD 0x0101080a
#define NOPS 0x01010101

/* The headers of a TCP packet, as far as they are read. */
struct parsed {
	struct connection_key key;
	struct segment segment;
	__u32 header; /* bytes of the TCP header */
	__u32 sack_at; /* byte of the TCP header where SACK begins, with its NOPs; 0: it has none */
	__u32 blocks; /* of SACK */
	__be16 source_port; /* as in the packet */
	__u8 tos;
	__u8 flags_byte; /* byte 12 of the TCP header */
	__u8 syn;
	__u8 rst;
};

static __always_inline void *start(struct __sk_buff *skb)
{
	return (void *)(long)skb->data;
}

static __always_inline void *end(struct __sk_buff *skb)
{
	return (void *)(long)skb->data_end;
}

static __always_inline __u32 read_word(struct __sk_buff *skb, __u32 at)
{
	__be32 *word = start(skb) + at;

	return (void *)(word + 1) <= end(skb) ? bpf_ntohl(*word) : 0;
}

/* Finds SACK where Linux writes it: behind the timestamps, if there are any. */
static __always_inline void read_sack(struct __sk_buff *skb, struct parsed *to)
{
	__u32 at = 20, word, length;

	if (to->header < 32)
		return;
	word = read_word(skb, L4 + 20);
	if (word == TIMESTAMP_WORD) {
		at = 32;
		word = read_word(skb, L4 + 32);
	}
	length = word & 0xff;
	if ((word & ~0xffU) != SACK_WORD || (length != 10 && length != 18 && length != 26 && length != 34))
		return;
	if (at + 2 + length > to->header)
		return;
	to->sack_at = at;
	to->blocks = length / 8;
	/* A block before the ACK says that a packet has arrived twice (RFC 2883). */
	to->segment.sack = !before(read_word(skb, L4 + at + 4), to->segment.ack);
	to->segment.sack_end = read_word(skb, L4 + at + 8);
}

/* Reads the headers; returns 0 for a packet that MCS has nothing to do with. */
static __always_inline int parse(struct __sk_buff *skb, struct parsed *to, int outwards)
{
	struct ethhdr *eth;
	struct iphdr *ip;
	struct tcphdr *tcp;
	__u32 payload, bytes;
	__u8 *byte;

	if (start(skb) + L4 + sizeof(*tcp) > end(skb) || start(skb) + L4 + ((__u8 *)start(skb))[L4 + 12] / 16 * 4 > end(skb))
		bpf_skb_pull_data(skb, skb->len < L4 + MAX_TCP_HEADER ? skb->len : L4 + MAX_TCP_HEADER);
	if (start(skb) + L4 + sizeof(*tcp) > end(skb))
		return 0;
	eth = start(skb);
	ip = start(skb) + ETH_HLEN;
	tcp = start(skb) + L4;
	if (eth->h_proto != bpf_htons(ETH_P_IP) || ip->version != 4 || ip->ihl != 5 || ip->protocol != IPPROTO_TCP)
		return 0;
	if (ip->frag_off & bpf_htons(IP_FRAGMENT_BITS))
		return 0;
	to->header = tcp->doff * 4;
	bytes = skb->len - ETH_HLEN;
	if (ip->tot_len || !skb->gso_size) { /* padding of short frames is no payload; a burst above 64 KB has no length */
		if (bpf_ntohs(ip->tot_len) > bytes)
			return 0;
		bytes = bpf_ntohs(ip->tot_len);
	}
	if (to->header < sizeof(*tcp) || bytes < sizeof(*ip) + to->header || start(skb) + L4 + to->header > end(skb))
		return 0;
	payload = bytes - sizeof(*ip) - to->header;
	byte = (__u8 *)tcp + 12;
	to->flags_byte = *byte;
	to->tos = ip->tos;
	to->source_port = tcp->source;
	to->syn = tcp->syn;
	to->rst = tcp->rst;
	to->sack_at = 0;
	to->blocks = 0;
	to->segment.seq = bpf_ntohl(tcp->seq);
	to->segment.ack = bpf_ntohl(tcp->ack_seq);
	to->segment.size = payload + tcp->fin;
	to->segment.packets = skb->gso_segs > 1 ? skb->gso_segs : 1;
	to->segment.mss = skb->gso_size ?: payload;
	to->segment.has_ack = tcp->ack;
	to->segment.fin = tcp->fin;
	to->segment.pure = tcp->ack && !payload && !tcp->syn && !tcp->fin && !tcp->rst;
	to->segment.sack = 0;
	to->segment.sack_end = 0;
	if (outwards) {
		to->key.local = bpf_ntohl(ip->saddr);
		to->key.remote = bpf_ntohl(ip->daddr);
		to->key.ports = bpf_ntohs(tcp->source) << 16 | bpf_ntohs(tcp->dest);
	} else {
		to->key.local = bpf_ntohl(ip->daddr);
		to->key.remote = bpf_ntohl(ip->saddr);
		to->key.ports = bpf_ntohs(tcp->dest) << 16 | bpf_ntohs(tcp->source);
	}
	return 1;
}

/* -- window scales -------------------------------------------------------------------------------------------------------------- */

/* Where in a SYN's options the window scale is looked for. */
struct options {
	__u8 bytes[64];
	__u32 length, at, shift;
};

/* Looks at one option; returns 1 at the end. */
static long read_option(__u32 number, struct options *in)
{
	__u8 kind, its;

	if (in->at + 3 > in->length)
		return 1;
	kind = in->bytes[in->at & 63];
	its = in->bytes[(in->at + 1) & 63];
	if (kind == 1) {
		in->at++;
		return 0;
	}
	if (kind == 3 && its == 3) {
		in->shift = in->bytes[(in->at + 2) & 63] > 14 ? 14 : in->bytes[(in->at + 2) & 63];
		return 1;
	}
	if (kind == 0 || its < 2)
		return 1;
	in->at += its;
	return 0;
}

/* Returns the shift count that a SYN announces, or UNKNOWN_SCALE. Not a loop: Linux 6.1 follows each of its turns. */
static __always_inline __u32 read_scale(struct __sk_buff *skb, __u32 header)
{
	struct options in = { .length = header - sizeof(struct tcphdr), .shift = UNKNOWN_SCALE };

	if (in.length < 3 || in.length > 40 || bpf_skb_load_bytes(skb, L4 + sizeof(struct tcphdr), in.bytes, in.length))
		return UNKNOWN_SCALE;
	bpf_loop(40, read_option, &in, 0);
	return in.shift;
}

static __always_inline void note_scale(struct __sk_buff *skb, const struct parsed *syn, int outwards)
{
	struct mcs_scale *known = bpf_map_lookup_elem(&mcs_scales, &syn->key), scale = {};
	__u32 shift = read_scale(skb, syn->header);

	if (known)
		scale = *known;
	if (outwards) {
		scale.known = (scale.known & ~LOCAL_HAS) | LOCAL_SEEN | (shift == UNKNOWN_SCALE ? 0 : LOCAL_HAS);
	} else {
		scale.known = (scale.known & ~REMOTE_HAS) | REMOTE_SEEN | (shift == UNKNOWN_SCALE ? 0 : REMOTE_HAS);
		scale.shift = shift == UNKNOWN_SCALE ? 0 : shift;
	}
	bpf_map_update_elem(&mcs_scales, &syn->key, &scale, BPF_ANY);
}

/* RFC 7323, section 2.2: windows are scaled only if both SYNs have the option. */
static __always_inline __u8 remote_scale(const struct connection_key *key)
{
	struct mcs_scale *known = bpf_map_lookup_elem(&mcs_scales, key);

	if (!known || !(known->known & REMOTE_SEEN) || !(known->known & LOCAL_SEEN))
		return UNKNOWN_SCALE;
	return known->known & REMOTE_HAS && known->known & LOCAL_HAS ? known->shift : 0;
}

/* -- both directions ------------------------------------------------------------------------------------------------------------ */

static __always_inline struct mcs_settings *settings(void)
{
	return word(&mcs_settings, 0);
}

static __always_inline int runs_mcs(__u32 host)
{
	return bpf_map_lookup_elem(&mcs_hosts, &host) != (void *)0;
}

static __always_inline int is_scattered_to(__u32 host)
{
	__u32 *use = bpf_map_lookup_elem(&mcs_hosts, &host);

	return use && *use == SCATTERS;
}

/* Returns the connection's state; null if there is no room, or if a packet that ends it is the first that is seen. */
static __always_inline struct mcs_connection *connection(const struct parsed *of, __u32 channels, __u32 seq)
{
	struct mcs_connection *its = bpf_map_lookup_elem(&mcs_connections, &of->key), fresh;

	if (its || of->segment.fin || of->rst)
		return its;
	begin(&fresh, channels, seq, remote_scale(&of->key), bpf_ktime_get_ns());
	/* Another CPU may insert the same connection in between: the first wins. */
	bpf_map_update_elem(&mcs_connections, &of->key, &fresh, BPF_NOEXIST);
	its = bpf_map_lookup_elem(&mcs_connections, &of->key);
	if (!its)
		count(NO_CONNECTION);
	return its;
}

static __always_inline int is_over(const struct mcs_connection *its, const struct segment *packet)
{
	return its->flags & CLOSED_OUT && its->flags & CLOSED_IN && packet->has_ack && !packet->fin;
}

/* Replaces bytes of the TCP header. The kernel changes the checksum only where the stack or the card has not left it for later. */
static __always_inline int replace(struct __sk_buff *skb, __u32 at, void *old, void *new, __u32 bytes)
{
	__s64 difference = bpf_csum_diff(old, bytes, new, bytes, 0);

	if (difference < 0 || bpf_l4_csum_replace(skb, L4 + 16, 0, difference, 0))
		return -1;
	return bpf_skb_store_bytes(skb, at, new, bytes, 0);
}

/* -- egress --------------------------------------------------------------------------------------------------------------------- */

/* Removes the SACK blocks, or all but the first `left`: NOPs instead, on `bytes` bytes, a multiple of 4 up to 20. */
static __always_inline int blank(struct __sk_buff *skb, __u32 at, __u32 bytes)
{
	__u32 old[5] = {}, nops[5] = { NOPS, NOPS, NOPS, NOPS, NOPS };

	if (bytes < 4 || bytes > sizeof(old))
		return 0;
	bytes &= 28;
	if (bpf_skb_load_bytes(skb, at, old, bytes))
		return -1;
	return replace(skb, at, old, nops, bytes);
}

/*
 * Makes room for an option in a header that SACK has filled. It gives up two blocks, the oldest, or all if the sender's TCP must not see any.
 * Returns 0 if there is room now.
 */
static __always_inline int make_room(struct __sk_buff *skb, const struct parsed *of, int without)
{
	__be32 old, new;

	if (without)
		return blank(skb, L4 + of->sack_at, 4 + 8 * of->blocks - MCO_BYTES);
	if (of->blocks < 3)
		return -1;
	old = bpf_htonl(SACK_WORD | (2 + 8 * of->blocks));
	new = bpf_htonl(SACK_WORD | (2 + 8 * (of->blocks - 2)));
	return replace(skb, L4 + of->sack_at, &old, &new, sizeof(new));
}

/* Writes the label of channel c's path. Without a path the packet goes as switches hash it. */
static __always_inline void label_channel(struct __sk_buff *skb, const struct connection_key *key, __u32 c)
{
	struct flow_key flow = { key->local, key->remote, key->ports, IPPROTO_TCP };
	__u32 *in_force = word(&turn, 0), at;
	struct path_word *path;
	struct choice choice;
	enum reason reason = NO_TABLE;

	choice.table = in_force ? word(&path_tables, *in_force & 1) : (void *)0;
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

	if (bpf_skb_store_bytes(skb, ETH_ALEN, source, sizeof(source), 0)) {
		count(NOT_WRITABLE);
		return;
	}
	count(LABELLED);
	count_path(path->up1, path->up2);
	if (skb->gso_segs > 1)
		count(GSO);
}

/* ECT(0), so that a congested port marks the packet rather than drop it. A connection that uses ECN itself has set it. */
static __always_inline void allow_marks(struct __sk_buff *skb, __u8 tos)
{
	__be16 old = bpf_htons(0x4500 | tos), new = bpf_htons(0x4500 | tos | ECT_0);

	if (!bpf_l3_csum_replace(skb, ETH_HLEN + 10, old, new, sizeof(new)))
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

	if (!set || !parse(skb, &of, 1) || is_forwarded(skb))
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
	mco_at = L4 + of.header - MCO_BYTES;
	mco = start(skb) + mco_at;
	room = of.header >= sizeof(struct tcphdr) + MCO_BYTES && (void *)(mco + 1) <= end(skb) && mco->kind == MCO_KIND &&
	       mco->length == MCO_BYTES && !(mco->channel >> 4) && sack_end <= of.header - MCO_BYTES;
	full = of.segment.has_ack && of.blocks > 1 && sack_end == of.header && of.header > MAX_TCP_HEADER - MCO_BYTES;
	if ((!room && !full) || !is_scattered_to(of.key.remote))
		return UNSCATTERED;
	its = room ? connection(&of, channels, of.segment.seq) : bpf_map_lookup_elem(&mcs_connections, &of.key);
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
		   out.verdict == SEND_WITHOUT_SACK && blank(skb, L4 + of.sack_at, 4 + 8 * of.blocks))
		return NOT_WRITABLE;

	struct mco old;
	__be32 flags[2];

	if (bpf_skb_load_bytes(skb, mco_at, &old, sizeof(old)) || replace(skb, mco_at, &old, &out.mco, sizeof(old)))
		return NOT_WRITABLE;
	if (bpf_skb_load_bytes(skb, FLAGS_AT, &flags[0], sizeof(flags[0])))
		return NOT_WRITABLE;
	flags[1] = flags[0] | bpf_htonl(SCATTERED_BIT << 24);
	if (replace(skb, FLAGS_AT, &flags[0], &flags[1], sizeof(flags[0])))
		return NOT_WRITABLE;
	if (of.segment.size && !(of.tos & ECN_BITS))
		allow_marks(skb, of.tos);
	if (set->kind == BY_PATHS) {
		label_channel(skb, &of.key, c);
	} else if (c) {
		__be16 port = bpf_htons(bpf_ntohs(of.source_port) - c);

		if (bpf_l4_csum_replace(skb, L4 + 16, of.source_port, port, sizeof(port)) ||
		    bpf_skb_store_bytes(skb, L4, &port, sizeof(port), 0))
			return NOT_WRITABLE;
	}
	return SCATTERED;
}

SEC("tc")
int sopa_mcs(struct __sk_buff *skb)
{
	enum reason reason = scatter(skb);

	count(reason);
	/* Not dropped, for TCP: it would take that for congestion. */
	return reason == ACK_FILTERED ? TC_ACT_STOLEN : TC_ACT_UNSPEC;
}

/* -- ingress -------------------------------------------------------------------------------------------------------------------- */

/* The source port as the remote's TCP has sent it. */
static __always_inline int restore_port(struct __sk_buff *skb, struct parsed *of, __u32 c)
{
	__be16 port = bpf_htons(bpf_ntohs(of->source_port) + c);

	if (bpf_l4_csum_replace(skb, L4 + 16, of->source_port, port, sizeof(port)) ||
	    bpf_skb_store_bytes(skb, L4, &port, sizeof(port), 0))
		return -1;
	of->key.ports = (of->key.ports & 0xffff0000) | bpf_ntohs(port);
	return 0;
}

static __always_inline void lower_window(struct __sk_buff *skb, __u32 allowed)
{
	__be16 old, new;

	if (bpf_skb_load_bytes(skb, WINDOW_AT, &old, sizeof(old)) || bpf_ntohs(old) <= allowed)
		return;
	new = bpf_htons(allowed);
	if (!bpf_l4_csum_replace(skb, L4 + 16, old, new, sizeof(new)) &&
	    !bpf_skb_store_bytes(skb, WINDOW_AT, &new, sizeof(new), 0))
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

	if (!set || !parse(skb, &of, 0))
		return REASONS;
	channels = set->channels;
	if (channels < 2 || channels > MAX_CHANNELS)
		return REASONS;
	if (of.syn) {
		if (runs_mcs(of.key.remote))
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
	if (bpf_skb_load_bytes(skb, L4 + of.header - MCO_BYTES, &mco, sizeof(mco)))
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
	its = connection(&of, channels, of.segment.has_ack ? of.segment.ack : 0);
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
		receive_data(its, &of.segment, c, lsn + of.segment.seq - gsn, (of.tos & ECN_BITS) == CE);
	receive_feedback(its, &of.segment, bpf_ntohs(mco.received_ce), bpf_ntohs(mco.received_on), received, channels);
	allowed = allowed_window(its);
	if (of.segment.fin)
		its->flags |= CLOSED_IN;
	ends = is_over(its, &of.segment);
	bpf_spin_unlock(&its->lock);

	if (ends)
		bpf_map_delete_elem(&mcs_connections, &of.key);
	if (of.segment.has_ack && !(set->without & WITHOUT_WINDOW))
		lower_window(skb, allowed);
	return MCO_TAKEN;
}

SEC("tc")
int sopa_mcs_in(struct __sk_buff *skb)
{
	enum reason reason = take(skb);

	if (reason != REASONS)
		count(reason);
	return TC_ACT_UNSPEC;
}

/* -- the stack ------------------------------------------------------------------------------------------------------------------ */

/* An IPv6 socket may have an IPv4 connection, and its address; connections of IPv6 have one of the loopback's there. */
static __always_inline int is_ours(struct bpf_sock_ops *its)
{
	struct mcs_settings *set = settings();

	return set && bpf_get_netns_cookie(its) == set->netns_cookie;
}

#define MD5_KIND 19 /* RFC 2385 */
#define AO_KIND 29 /* RFC 5925 */
#define ENOSPC 28

static __always_inline int has_option(struct bpf_sock_ops *its, __u8 kind)
{
	__u8 option[4] = { kind };
	long found = bpf_load_hdr_opt(its, option, sizeof(option), 0);

	return found > 0 || found == -ENOSPC; /* longer than what is asked for */
}

/* The last packet of the handshake that came is signed, and so are all that follow: nothing may change in their headers. */
static __always_inline int is_signed(struct bpf_sock_ops *its)
{
	return has_option(its, MD5_KIND) || has_option(its, AO_KIND);
}

SEC("sockops")
int sopa_mcs_ops(struct bpf_sock_ops *its)
{
	struct mco placeholder = { MCO_KIND, MCO_BYTES };

	if ((its->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB || its->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB) && is_signed(its))
		return 1;
	switch (its->op) {
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		if (is_ours(its) && runs_mcs(bpf_ntohl(its->remote_ip4)))
			bpf_sock_ops_cb_flags_set(its, its->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
		break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		if (is_ours(its) && is_scattered_to(bpf_ntohl(its->remote_ip4)))
			bpf_reserve_hdr_opt(its, sizeof(placeholder), 0);
		break;
	case BPF_SOCK_OPS_WRITE_HDR_OPT_CB:
		bpf_store_hdr_opt(its, &placeholder, sizeof(placeholder), 0);
		break;
	}
	return 1;
}

/* -- clean-up ------------------------------------------------------------------------------------------------------------------- */

struct bpf_map; /* the kernel's */

struct sweep {
	__u64 before_ns;
	__u32 removed;
	__u32 left;
};

static long sweep_one(struct bpf_map *map, const struct connection_key *key, struct mcs_connection *its, struct sweep *its_sweep)
{
	if (its->seen < its_sweep->before_ns) {
		bpf_map_delete_elem(map, key);
		its_sweep->removed++;
	} else {
		its_sweep->left++;
	}
	return 0;
}

/*
 * Runs by BPF_PROG_TEST_RUN on a frame that contains a sweep behind the Ethernet header. Linux 6.1 has no locks in programs of the type
 * syscall, which would be the one for this.
 */
SEC("tc")
int sopa_mcs_sweep(struct __sk_buff *skb)
{
	struct sweep its;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &its, sizeof(its)))
		return TC_ACT_SHOT;
	its.removed = 0;
	its.left = 0;
	bpf_for_each_map_elem(&mcs_connections, sweep_one, &its, 0);
	if (bpf_skb_store_bytes(skb, ETH_HLEN, &its, sizeof(its), 0))
		return TC_ACT_SHOT;
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Apache-2.0"; /* no helper in use asks for the GPL */
