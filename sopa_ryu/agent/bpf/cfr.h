/* CFR (docs/cfr.md): what its programs and the agent share. Written and read by sopa_ryu/agent/slots/cfr_programs.py. */
#ifndef SOPA_CFR_H
#define SOPA_CFR_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

/* Slot n is the time from n to n + 1 slot lengths on the arbiter's clock, which is CLOCK_MONOTONIC of this host plus the offset. */
struct cfr_settings {
	__u64 slot_ns; /* 0: there was no grant yet, and nothing is held */
	__s64 offset_ns;
	__u64 open_after; /* CLOCK_MONOTONIC of this host: the end of the lease */
	__u64 first_slot; /* before it nothing is held */
	__u64 late_ns; /* a packet may end so long after its slot */
	__u64 ahead_ns; /* so long before its slot data goes to fq, which keeps it until then; 0: there is no fq */
	__u64 netns_cookie; /* whose sockets are gated; 0: all, for tests */
	__u32 host; /* address of this host, host order */
	__u32 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cfr_settings);
} cfr_settings SEC(".maps");

/* A granted slot, at slot % SLOTS. The agent writes it before the slot begins, and never afterwards. */
struct cfr_slot {
	__u64 slot;
	__u32 destination; /* host order */
	__u32 budget; /* bytes of Ethernet frames */
	__u32 used; /* of them, by all processors */
	__u8 up1;
	__u8 up2;
	__u16 unused;
};

#define SLOTS 1024

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, struct cfr_slot);
} cfr_slots SEC(".maps");

/* Bytes of frames with data that have passed the gate, by destination, in host order. A host that is not listed has got none. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u64);
} cfr_sent SEC(".maps");

/*
 * Connections to one destination share its slots by deficit round robin (Shreedhar and Varghese, SIGCOMM 1995): in each slot a connection
 * gets a part as credit, and sends while its credit is at least `floor`.
 */
struct cfr_turns {
	__u64 slot; /* the last one */
	__s64 floor; /* 1, or the highest credit where all have less: a slot is for somebody */
	__s64 best; /* the highest credit, of those that still have data, as the iterator runs */
	__u64 part;
	__u64 wanted; /* what they want to send, each at most a budget, as the iterator runs */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32); /* destination, in host order */
	__type(value, struct cfr_turns);
} cfr_turns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __s64);
} cfr_credits SEC(".maps"); /* bytes of frames */

/* What an iterator writes for each socket that has something to send. */
struct cfr_unsent {
	__u32 destination; /* host order */
	__u32 bytes; /* of frames */
};

/* What the other iterator writes for each socket that listens. */
struct cfr_listens {
	__u64 unused;
};

/* -- what is read of the kernel's structures; libbpf finds the offsets of the kernel that runs (CO-RE) -------------------------------- */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct net {
	__u64 net_cookie;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct sock_common {
	__be32 skc_daddr;
	unsigned short skc_family;
	unsigned char skc_state;
	struct in6_addr skc_v6_daddr;
	possible_net_t skc_net;
};

struct tcp_sock {
	__u16 tcp_header_len;
	__u32 snd_nxt;
	__u32 snd_una;
	__u32 write_seq;
	__u32 mss_cache;
	__u64 bytes_acked;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};

#pragma clang attribute pop

#endif
