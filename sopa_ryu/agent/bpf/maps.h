/* The maps that program and agent share: path tables (encoded by sopa_ryu/agent/paths/path_table.py), flow state and counters. */
#ifndef SOPA_MAPS_H
#define SOPA_MAPS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "flowhash.h"

/*
 * A path table has all that a choice depends on, in 8-byte words, in this order. There are two: the active index tells which one is in
 * force, so that replacing it is one atomic step. The agent fills the other one only once no program can be reading it.
 */
struct fabric_word { /* word 0 */
	__u32 network; /* host order */
	__u32 netmask;
};

struct choice_word { /* word 1 */
	__u32 seed;
	__u16 destinations;
	__u8 stride; /* edge switches per pod */
	__u8 policy;
};

struct parameter_word { /* word 2 */
	__u64 value; /* FLOWLET: the gap in nanoseconds; FLOWCELL: the cell in bytes */
};

struct outside_word { /* word 3 */
	__u32 first; /* word of the first of GATEWAY_SLOTS destination words: a flow to the outside takes the one of its hash */
	__u8 has_slots; /* 0: no gateway leads out */
	__u8 leads_out; /* this host is a gateway */
	__u16 unused;
};

struct prefix_word { /* word 4 */
	__u64 prefix; /* of the fabric's IPv6 addresses: the upper 48 bits; 0: it has none */
};

struct srv6_word { /* word 5: of the carrier srv6 */
	__u32 block; /* of uSIDs, host order; 0: another carrier */
	__u8 pod; /* of this host */
	__u8 edge;
	__u8 number; /* the last of its addresses */
	__u8 unused;
};

struct destination_word { /* words 6 .. 6 + destinations - 1, by pod * stride + edge */
	__u32 first; /* word of the set's first path */
	__u32 count; /* 0: no path is left */
};

struct path_word { /* all words after that but the slots, set by set */
	__u8 up1;
	__u8 up2;
	__u8 gateway[6]; /* Ethernet destination of packets that leave the fabric; 0 of all others */
};

enum table_layout { FABRIC_WORD, CHOICE_WORD, PARAMETER_WORD, OUTSIDE_WORD, PREFIX_WORD, SRV6_WORD, FIRST_DESTINATION };

#define GATEWAY_SLOTS 256
#define GATEWAY_SEED 0x6f757473 /* of all hosts and for ever: a flow stays with its gateway when its agent restarts */

enum policy { ROUND_ROBIN, RANDOM, HASH, LEAST_USED, FLOWLET, FLOWCELL, SOPA_SKIP = 7 };

/* In place of a policy in `turn`: ROUND_ROBIN, and edge switches' ports may spread (spread.h), over the same candidates. */
#define SPREADS 6

/* Counter numbers: `Reason` in kernel/counters.py. */
enum reason {
	LABELLED,
	NOT_IPV4,
	OUTSIDE,
	NO_PATH,
	NO_TABLE,
	MALFORMED,
	GSO,
	NO_FLOW_STATE,
	NOT_WRITABLE,
	NO_ROOM,
	TOO_BIG,
	STRIPPED,
	NOT_STRIPPED,
	FORWARDED,
	CUT,
	SCATTERED,
	UNSCATTERED,
	MCO_TAKEN,
	ACK_FILTERED,
	WINDOW_LOWERED,
	NO_CONNECTION,
	MCO_UNKNOWN,
	MCO_MALFORMED,
	GRANTED,
	HELD,
	PASSED_IN_GUARD,
	GATE_OPEN,
	HASHED,
	SPREAD,
	IDS_STAND,
	OUTDATED,
	REASONS,
};

struct path_table {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_INNER_MAP); /* tables may differ in size; Linux 5.10 */
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 2);
	__type(key, __u32);
	__array(values, struct path_table);
} path_tables SEC(".maps");

/*
 * What is in force: the table's index in 1 bit, its policy in 3, its version in 27, which is new at each swap.
 * Its name stays `turn`: an agent of any release finds a killed one's maps by their names.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} turn SEC(".maps");

/*
 * The device that cuts a burst into packets and sends them through this interface again, each to get a label of its own; without an entry
 * bursts have one label each (sopa_ryu/agent/kernel/segmentation.py). The kernel removes the entry with the device.
 */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} cut_by SEC(".maps");

/* The flows each of whose packets takes the next path (sopa_ryu/agent/label/spray.py): all others keep one. */
#define SPRAY_RANGES 8

struct spray {
	__u64 kept[4]; /* a bit for each protocol whose flows keep a path, but for UDP's of these ports */
	__u8 forwarded; /* so are packets that the host passes on */
	__u8 ranges;
	__u16 unused[3];
	struct {
		__u16 first;
		__u16 last;
	} udp[SPRAY_RANGES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct spray);
} spray SEC(".maps");

#define KEEPS_PATH (1 << 16) /* the flow is not sprayed */
#define HAS_PATH (1 << 17) /* up1 and up2 are in the lower bytes */

struct flow_state {
	__u64 turns; /* packets so far; FLOWLET: flowlets that have ended; of a flow that keeps its path: the path's place among candidates */
	__u64 mark; /* FLOWLET: time of the last packet, ns; FLOWCELL: bytes so far; of a flow that is sprayed otherwise: ack.h */
	__u64 known; /* version of a path table, the word of the first candidate there, their number: choose.h */
	__u32 hash; /* of the flow, once the candidates are known */
	__u32 path; /* KEEPS_PATH, HAS_PATH and a label; 0 of a flow that is sprayed */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536); /* the agent sets its own before loading */
	__type(key, struct flow_key);
	__type(value, struct flow_state);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, REASONS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

/*
 * Labelled packets by label, at (up1 + 1) * HOPS + up2 + 1, in 8 bits each: a hop not taken, 0xff, comes first. Labels that name an
 * uplink above 63 share the last place: one of its own for each of them would be 0.5 MB a processor in every host.
 */
#define HOPS 65 /* none, and the 64 uplinks of a switch at k=128 */
#define PLACES (HOPS * HOPS + 1)

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PLACES);
	__type(key, __u32);
	__type(value, __u64);
} path_packets SEC(".maps");

/* LEAST_USED: bytes carried under each label, as far as a choice looks back; places as above. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PLACES);
	__type(key, __u32);
	__type(value, __u64);
} path_load SEC(".maps");

/* Returns nonzero if the path leads to a gateway; planned addresses begin with 02. */
static __always_inline int leaves(const struct path_word *path)
{
	return path->gateway[0];
}

/* Returns an address in the last rack of a path to this one; a gateway's Ethernet address ends with its own in the fabric. */
static __always_inline __u32 end_of(const struct path_word *path, __u32 daddr)
{
	if (!leaves(path))
		return daddr;
	return path->gateway[2] << 24 | path->gateway[3] << 16 | path->gateway[4] << 8 | path->gateway[5];
}

static __always_inline __u32 path_place(__u8 up1, __u8 up2)
{
	__u32 first = (__u8)(up1 + 1), second = (__u8)(up2 + 1);

	return first < HOPS && second < HOPS ? first * HOPS + second : PLACES - 1;
}

static __always_inline void add_one(void *counter_map, __u32 at)
{
	__u64 *value = bpf_map_lookup_elem(counter_map, &at);

	if (value)
		(*value)++; /* per CPU, and a tc program does not interrupt itself */
}

static __always_inline void count(__u32 reason)
{
	add_one(&counters, reason);
}

static __always_inline void count_path(__u8 up1, __u8 up2)
{
	add_one(&path_packets, path_place(up1, up2));
}

#endif
