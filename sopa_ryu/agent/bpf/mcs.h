/* Multi-Channel Scatter (docs/mcs.md): what its programs and the agent share. */
#ifndef SOPA_MCS_H
#define SOPA_MCS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "mcs_option.h"

enum channel_kind { BY_PATHS, BY_PORTS };

/* What of MCS is left out, for comparison. */
enum mcs_without { WITHOUT_WINDOW = 1, WITHOUT_FILTER = 2 };

/* A connection, from this host's side: what of its addresses and ports is in a flow's key (flowhash.h), of the flow that it sends. */
struct connection_key {
	__u32 local;
	__u32 remote;
	__u32 ports; /* local << 16 | remote */
	__u32 proto;
};

enum connection_flags {
	SLOW_START = 1,
	LOSS = 2,
	LAN_KNOWN = 4,
	CLOSED_OUT = 8,
	CLOSED_IN = 16,
	RESENT = 32, /* in this round */
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

struct mcs_settings_map mcs_settings SEC(".maps");

struct mcs_host_map mcs_hosts SEC(".maps");

/* Not LRU: such a map has no locks. The agent removes idle entries by sopa_mcs_sweep. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536); /* the agent sets its own before loading */
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct connection_key);
	__type(value, struct mcs_connection);
} mcs_connections SEC(".maps");

/*
 * Connections that packets of far hosts have begun since the last clean-up, by a hash of the host: its share of the two maps. What is
 * beyond that has a state only if this host's TCP knows it.
 */
#define SHARE 1024
#define SHARES 1024

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SHARES);
	__type(key, __u32);
	__type(value, __u32);
} mcs_begun SEC(".maps");

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

#endif
