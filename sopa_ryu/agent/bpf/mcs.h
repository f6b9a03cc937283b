/* Multi-Channel Scatter (docs/mcs.md): what its programs and the agent share, and the algorithms on a connection's state. */
#ifndef SOPA_MCS_H
#define SOPA_MCS_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MCO_KIND 253 /* RFC 4727 */
#define MCO_BYTES 16
#define MCO_VERSION 1 /* 0 is a placeholder that the stack has written */
#define SCATTERED_BIT 0x08 /* of byte 12 of the TCP header: a reserved bit */
#define MAX_CHANNELS 16

/* The Multi-Channel Option: the last 16 bytes of the TCP header. In network order. */
struct mco {
	__u8 kind;
	__u8 length;
	__be16 received_ce; /* a bit a channel */
	__be16 received_on;
	__u8 received; /* packets without a mark */
	__u8 channel; /* 4 bits, below the version's 4 */
	__be32 gsn;
	__be32 lsn;
};

enum channel_kind { BY_PATHS, BY_PORTS };

/* What of MCS is left out, for comparison. */
enum mcs_without { WITHOUT_WINDOW = 1, WITHOUT_FILTER = 2 };

struct mcs_settings {
	__u64 netns_cookie;
	__u8 channels;
	__u8 kind;
	__u16 without;
	__u32 patience_us; /* 0: PATIENCE_US */
};

/* A connection, from this host's side; host order. */
struct connection_key {
	__u32 local;
	__u32 remote;
	__u32 ports; /* local << 16 | remote */
};

enum connection_flags {
	SLOW_START = 1,
	LOSS = 2,
	LAN_KNOWN = 4,
	CLOSED_OUT = 8,
	CLOSED_IN = 16,
};

#define UNKNOWN_SCALE 0xff

/*
 * Both flows of a connection, in one entry with one lock; names of the paper's figure 3 behind. Vectors have 2 bits a channel, skip
 * tokens 4, channel 0 the lowest. tests/bpf reads this by offsets.
 */
struct mcs_connection {
	struct bpf_spin_lock lock;
	__u32 next_seq; /* NSN */
	__u32 milestone; /* MSN */
	__u32 window; /* WS, bytes */
	__u64 skip_tokens; /* SKV */
	__u32 weights; /* WV: a channel is chosen 2^-weight as often */
	__u32 freshness; /* FV */
	__u16 congested; /* CB */
	__u16 active; /* AB */
	__u16 alpha; /* in 1024ths */
	__u16 mss;
	__u8 channel; /* CC */
	__u8 scale; /* WSC */
	__u8 flags; /* FL */
	__u8 received; /* RP */
	__u32 last_ack; /* LAN */
	__u32 retransmit; /* RSN */
	__u16 received_on; /* RB */
	__u16 received_ce; /* RCB */
	__u16 initialized; /* IB */
	__u16 unused;
	__u32 gap_since; /* us: when the packets behind the next that is expected began to come; 0: there are none */
	__u64 seen; /* TS, ns */
	__u32 next_local[MAX_CHANNELS]; /* NLSN of the flow that this host sends */
	__u32 expected[MAX_CHANNELS]; /* NLSN of the flow that it receives */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct mcs_settings);
} mcs_settings SEC(".maps");

/* Hosts that run MCS, by IPv4 address in host order; `Use` in mcs_peers.py. One that has left may not have heard of a change yet. */
enum host_use { SCATTERS = 1, ACCEPTS };

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, __u32);
} mcs_hosts SEC(".maps");

/* Not LRU: such a map has no locks. The agent removes idle entries by sopa_mcs_sweep. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536); /* the agent sets its own before loading */
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct connection_key);
	__type(value, struct mcs_connection);
} mcs_connections SEC(".maps");

/* The window scales of RFC 7323, which only the handshake has: a connection's state may go and come again. */
struct mcs_scale {
	__u8 shift; /* the remote's */
	__u8 known; /* flags below */
	__u16 unused;
};

enum scale_flags { REMOTE_SEEN = 1, REMOTE_HAS = 2, LOCAL_SEEN = 4, LOCAL_HAS = 8 };

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct connection_key);
	__type(value, struct mcs_scale);
} mcs_scales SEC(".maps");

/* What of a TCP packet the algorithms need. */
struct segment {
	__u32 seq;
	__u32 ack;
	__u32 size; /* in the sequence space: payload, and 1 for FIN */
	__u32 packets; /* that it is, or was, on the wire */
	__u16 mss; /* bytes of payload in each */
	__u8 has_ack;
	__u8 fin;
	__u8 pure; /* an ACK and nothing else */
	__u8 sack; /* SACK blocks that report packets that have arrived out of order, and none that arrived twice */
	__u32 sack_end; /* of the first of them */
};

static __always_inline int before(__u32 one, __u32 other)
{
	return (__s32)(one - other) < 0;
}

static __always_inline __u32 all_channels(__u32 channels)
{
	return (1U << channels) - 1;
}

static __always_inline __u32 all_fresh(__u32 channels)
{
	return (1ULL << 2 * channels) - 1;
}

/*
 * Vectors of 2 and 4 bits a channel, and bitmaps of channels: all of them at a time, as the verifier would follow each branch of a loop
 * over them. A bitmap is spread to the lowest bits of a vector's elements, and gathered from them.
 */
#define EVERY_2 0x55555555U
#define EVERY_4 0x1111111111111111ULL

static __always_inline __u32 spread2(__u32 bitmap)
{
	bitmap = (bitmap | bitmap << 8) & 0x00ff00ff;
	bitmap = (bitmap | bitmap << 4) & 0x0f0f0f0f;
	bitmap = (bitmap | bitmap << 2) & 0x33333333;
	return (bitmap | bitmap << 1) & EVERY_2;
}

static __always_inline __u32 gathered2(__u32 vector)
{
	vector &= EVERY_2;
	vector = (vector | vector >> 1) & 0x33333333;
	vector = (vector | vector >> 2) & 0x0f0f0f0f;
	vector = (vector | vector >> 4) & 0x00ff00ff;
	return (vector | vector >> 8) & 0xffff;
}

static __always_inline __u64 spread4(__u64 bitmap)
{
	bitmap = (bitmap | bitmap << 24) & 0x000000ff000000ffULL;
	bitmap = (bitmap | bitmap << 12) & 0x000f000f000f000fULL;
	bitmap = (bitmap | bitmap << 6) & 0x0303030303030303ULL;
	return (bitmap | bitmap << 3) & EVERY_4;
}

/* Returns the bitmap of the elements that are not 0. */
static __always_inline __u32 gathered4(__u64 vector)
{
	vector |= vector >> 2;
	vector |= vector >> 1;
	vector &= EVERY_4;
	vector = (vector | vector >> 3) & 0x0303030303030303ULL;
	vector = (vector | vector >> 6) & 0x000f000f000f000fULL;
	vector = (vector | vector >> 12) & 0x000000ff000000ffULL;
	return (vector | vector >> 24) & 0xffff;
}

/* Returns the bitmap as seen from channel `from` on: that one first. */
static __always_inline __u32 rotated(__u32 bitmap, __u32 from, __u32 channels)
{
	return (bitmap >> from | bitmap << (channels - from)) & all_channels(channels);
}

static __always_inline __u32 lowest(__u32 bitmap)
{
	return bitmap & -bitmap;
}

/* Returns the first channel of a bitmap that is rotated to begin with channel `from`. */
static __always_inline __u32 rank(__u32 bitmap, __u32 from, __u32 channels)
{
	__u32 c = from, bit = lowest(bitmap);

	c += (bit & 0xff00 ? 8 : 0) + (bit & 0xf0f0 ? 4 : 0) + (bit & 0xcccc ? 2 : 0) + (bit & 0xaaaa ? 1 : 0);
	return (c < channels ? c : c - channels) & (MAX_CHANNELS - 1);
}

/* Section IV.G: initialised by any packet but FIN; `seq` is the next that this host sends. */
static __always_inline void begin(struct mcs_connection *its, __u32 channels, __u32 seq, __u8 scale, __u64 now)
{
	__builtin_memset(its, 0, sizeof(*its));
	its->next_seq = seq;
	its->milestone = seq;
	its->mss = 536; /* RFC 9293, until a packet shows it */
	its->window = 14600; /* RFC 6928 */
	its->freshness = all_fresh(channels);
	its->active = all_channels(channels);
	its->alpha = 1024; /* as Linux' DCTCP begins */
	its->channel = channels - 1;
	its->scale = scale;
	its->flags = SLOW_START;
	its->seen = now;
	for (int c = 0; c < MAX_CHANNELS; c++)
		its->next_local[c] = seq;
}

/* -- the flow that this host receives ------------------------------------------------------------------------------------------- */

/* Algorithm 1, onReceiveData, with the repair of LAN. */
static __always_inline void receive_data(struct mcs_connection *its, const struct segment *got, __u32 c, __u32 local, int marked)
{
	__u32 bit = 1U << c;

	if (its->initialized & bit && before(its->expected[c & (MAX_CHANNELS - 1)], local)) {
		its->flags |= LOSS;
		its->retransmit = got->seq;
	}
	its->expected[c & (MAX_CHANNELS - 1)] = local + got->size;
	its->initialized |= bit;
	if (its->flags & LAN_KNOWN && before(got->seq, its->last_ack))
		its->last_ack = got->seq; /* or else the answer to a repeated packet would count as a duplicate for ever */
	its->received_on |= bit;
	if (marked) {
		its->received_ce |= bit;
	} else {
		__u32 received = its->received + got->packets;

		its->received = received > 255 ? 255 : received;
	}
}

enum verdict { SEND, SEND_WITHOUT_SACK, DROP };

#define PATIENCE_US 20000 /* far more than paths differ by, and less than the least retransmission timeout of Linux */

/*
 * What is missing for so long was lost: on a channel that carries nothing any more there is no gap to be seen, and without SACK the
 * sender's TCP would find one lost packet a timeout. Microseconds wrap.
 */
static __always_inline void watch_gap(struct mcs_connection *its, const struct segment *sent, __u32 now_us, __u32 patience_us, int advanced)
{
	if (its->gap_since && sent->sack && !(its->flags & LOSS) && now_us - its->gap_since >= patience_us) {
		its->flags |= LOSS;
		its->retransmit = sent->sack_end;
	}
	if (advanced || !its->gap_since)
		its->gap_since = sent->sack ? now_us ?: 1 : 0;
}

/*
 * Algorithm 1, onSendACK. Only ACKs that SACK makes look like a loss are dropped: others may be window updates, or answers to probes.
 * With data SACK would look like it all the same: TCP reads it in every packet.
 */
static __always_inline enum verdict send_ack(struct mcs_connection *its, const struct segment *sent, int filter, __u32 now_us, __u32 patience_us)
{
	int without = filter && sent->sack, advanced;

	if (!sent->has_ack)
		return SEND;
	advanced = !(its->flags & LAN_KNOWN) || before(its->last_ack, sent->ack);
	if (advanced || sent->ack == its->last_ack)
		watch_gap(its, sent, now_us, patience_us, advanced);
	if (its->flags & LAN_KNOWN && sent->ack == its->last_ack) {
		if (without && sent->pure && !(its->flags & LOSS))
			return DROP;
	} else if (advanced) {
		its->last_ack = sent->ack;
		its->flags |= LAN_KNOWN;
		if (its->flags & LOSS && before(its->retransmit, its->last_ack))
			its->flags &= ~LOSS;
	}
	return without && !(its->flags & LOSS) ? SEND_WITHOUT_SACK : SEND;
}

/* -- the flow that this host sends ---------------------------------------------------------------------------------------------- */

/* Algorithm 3, without a loop: what it skips are the active channels before the first that has no skip token. */
static __always_inline __u32 select_channel(struct mcs_connection *its, __u32 channels)
{
	__u32 all = all_channels(channels), first = its->channel + 1, ready, passed, c;

	if (first >= channels)
		first = 0;
	if (!its->active) { /* nothing is left to lose */
		its->active = all;
		its->freshness = all_fresh(channels);
	}
	ready = rotated(its->active & ~gathered4(its->skip_tokens), first, channels);
	passed = ready ? rotated(lowest(ready) - 1, channels - first, channels) : all;
	its->skip_tokens -= spread4(its->active & passed);
	if (!ready && its->active >> first & 1) { /* the round ends where it began */
		if (!(its->skip_tokens >> 4 * first & 15))
			ready = 1;
		else
			its->skip_tokens -= 1ULL << 4 * first;
	}
	if (!ready)
		return rank(rotated(its->active, first, channels), first, channels);
	c = rank(ready, first, channels);
	its->skip_tokens |= (__u64)((1 << (its->weights >> 2 * c & 3)) - 1) << 4 * c;
	return c;
}

/* Takes a channel for a packet; returns its local sequence number there. */
static __always_inline __u32 send_on_channel(struct mcs_connection *its, const struct segment *sent, __u32 channels)
{
	__u32 c = select_channel(its, channels) & (MAX_CHANNELS - 1), end = sent->seq + sent->size, local;

	its->channel = c;
	local = its->next_local[c];
	its->next_local[c] = local + sent->size;
	if (before(its->next_seq, end))
		its->next_seq = end;
	if (sent->mss > its->mss)
		its->mss = sent->mss;
	if (sent->size && (its->freshness >> 2 * c & 3) == 3) /* algorithm 5, onSendData */
		its->freshness -= 1U << 2 * c;
	return local;
}

/* Algorithm 2, lines 4 to 10: at most one channel's weight changes, then all are normalised. */
static __always_inline void update_weights(struct mcs_connection *its)
{
	__u32 high = its->weights >> 1 & its->weights & EVERY_2; /* weights of 3 */

	its->weights += spread2(lowest(its->congested & ~gathered2(high)));
	if (!(its->active & ~gathered2(its->weights | its->weights >> 1)))
		its->weights -= (its->weights | its->weights >> 1) & EVERY_2;
}

/* Algorithm 4, onNewRTT: the congestion window of DCTCP, with a share of marked packets of 1. */
static __always_inline void update_window(struct mcs_connection *its)
{
	__u32 least = 2 * its->mss;

	if (!its->congested) {
		its->alpha -= its->alpha / 16;
		return;
	}
	its->alpha += (1024U - its->alpha) / 16;
	its->flags &= ~SLOW_START;
	its->window -= (__u64)its->window * its->alpha / 2048;
	if (its->window < least)
		its->window = least;
}

/* Algorithm 5, onNewRTT. */
static __always_inline void update_freshness(struct mcs_connection *its)
{
	__u32 any = (its->freshness | its->freshness >> 1) & EVERY_2, full = its->freshness & its->freshness >> 1 & EVERY_2;

	its->active &= gathered2(any);
	its->freshness -= any & ~full;
}

#define MAX_WINDOW (1U << 30)

/* What an MCO says of the flow that this host sends: algorithms 2, 4 and 5. */
static __always_inline void receive_feedback(
	struct mcs_connection *its, const struct segment *got, __u32 ce, __u32 on, __u32 received, __u32 channels)
{
	__u64 added;

	its->congested |= ce & all_channels(channels);
	its->freshness |= 3 * spread2(on & all_channels(channels));
	its->active |= on & all_channels(channels);
	added = (__u64)its->mss * received;
	added = its->flags & SLOW_START ? added / 2 : added * its->mss / (its->window ?: 1);
	its->window = its->window + added > MAX_WINDOW ? MAX_WINDOW : its->window + added;
	if (!got->has_ack || !before(its->milestone, got->ack))
		return;
	update_weights(its);
	update_window(its);
	update_freshness(its);
	its->congested = 0;
	its->milestone = its->next_seq + 1;
}

/* Returns the most that the remote may allow this host to send, as its header says it; 0xffff where nothing is known. */
static __always_inline __u32 allowed_window(const struct mcs_connection *its)
{
	__u32 window;

	if (its->flags & SLOW_START || its->scale == UNKNOWN_SCALE)
		return 0xffff;
	window = its->window >> (its->scale & 15);
	return window > 0xffff ? 0xffff : window ?: 1;
}

#endif
