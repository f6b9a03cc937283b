/* The algorithms of Multi-Channel Scatter on a connection's state (docs/mcs.md has where they differ from the paper's). */
#ifndef SOPA_MCS_ALGORITHMS_H
#define SOPA_MCS_ALGORITHMS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "mcs.h"
#include "mcs_vectors.h"

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

/* Algorithm 5, onNewRTT. */
static __always_inline void update_freshness(struct mcs_connection *its)
{
	__u32 any = (its->freshness | its->freshness >> 1) & EVERY_2, full = its->freshness & its->freshness >> 1 & EVERY_2;

	its->active &= gathered2(any);
	its->freshness -= any & ~full;
}

/*
 * What TCP sends again ends a round, in which nothing has come back, and begins one that ends with its acknowledgement. Or else none would
 * end before all is acknowledged that was under way when a channel died. Of what is sent again meanwhile only an earlier or the same byte does so.
 */
static __always_inline void resend(struct mcs_connection *its, __u32 seq)
{
	if (its->flags & RESENT && before(its->milestone, seq))
		return;
	update_freshness(its);
	its->flags |= RESENT;
	if (before(seq, its->milestone))
		its->milestone = seq;
}

/* Takes a channel for a packet; returns its local sequence number there. */
static __always_inline __u32 send_on_channel(struct mcs_connection *its, const struct segment *sent, __u32 channels)
{
	__u32 c, end = sent->seq + sent->size, local;

	if (sent->size && before(sent->seq, its->next_seq))
		resend(its, sent->seq);
	its->channel = select_channel(its, channels);
	/* As it is in memory: of what it has computed itself the verifier would look at each channel. */
	c = *(volatile __u8 *)&its->channel & (MAX_CHANNELS - 1);
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
	its->flags &= ~RESENT;
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
