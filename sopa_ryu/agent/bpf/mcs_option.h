/* The option of Multi-Channel Scatter, and the hosts that know it: what the programs at tc and the one in the stack share. */
#ifndef SOPA_MCS_OPTION_H
#define SOPA_MCS_OPTION_H

#include <linux/bpf.h>
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

struct mcs_settings {
	__u8 channels;
	__u8 kind;
	__u16 without;
	__u32 patience_us; /* 0: PATIENCE_US */
	__u64 prefix; /* of the fabric's IPv6 addresses: the upper 48 bits, as in a path table; 0: it has none */
	__u32 network; /* of its IPv4 addresses */
	__u32 unused;
};

struct mcs_settings_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	/* sizes, as clang 14 leaves a structure out that is the value of a map in a map */
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct mcs_settings));
};

/* Hosts that run MCS, by IPv4 address in host order; `Use` in mcs_peers.py. One that has left may not have heard of a change yet. */
enum host_use { SCATTERS = 1, ACCEPTS };

struct mcs_host_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, __u32);
};

#endif
