/* The window scales of both ends of a connection, which only its SYNs have. */
#ifndef SOPA_MCS_SCALES_H
#define SOPA_MCS_SCALES_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "mcs.h"
#include "mcs_packet.h"

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
static __always_inline __u32 read_scale(struct __sk_buff *skb, const struct parsed *syn)
{
	struct options in = { .length = syn->header - sizeof(struct tcphdr), .shift = UNKNOWN_SCALE };

	if (in.length < 3 || in.length > 40 || bpf_skb_load_bytes(skb, syn->l4 + sizeof(struct tcphdr), in.bytes, in.length))
		return UNKNOWN_SCALE;
	bpf_loop(40, read_option, &in, 0);
	return in.shift;
}

static __always_inline void note_scale(struct __sk_buff *skb, const struct parsed *syn, int outwards)
{
	struct mcs_scale *known = bpf_map_lookup_elem(&mcs_scales, &syn->key), scale = {};
	__u32 shift = read_scale(skb, syn);

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

#endif
