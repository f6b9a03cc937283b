/* Path probes (docs/probes.md): the test packet of STAMP (RFC 8762) with one TLV (RFC 8972), and what programs share about it. */
#ifndef SOPA_PROBE_H
#define SOPA_PROBE_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/udp.h>

#include "label.h"

/*
 * On an answer on its way out, and with the carrier `srv6` on probes. It has its label already: the programs at tc egress let it pass.
 * Ordinary packets have not come in by an interface, and pay no more than the look at that.
 */
#define ANSWER_MARK 0x534f5041

static __always_inline int is_answer(struct __sk_buff *skb)
{
	return skb->ingress_ifindex && skb->mark == ANSWER_MARK;
}

#define PROBE_PORT 862
#define PROBE_TOS 0xc0 /* CS6 */
#define TLV_HEAD 0x00fc000c /* no flags, type 252 (private use), length 12 */
#define TLV_UNRECOGNIZED 0x80000000 /* the flag that a sender sets and a reflector clears */
#define TLV_FLAGS 0xff000000
#define TLV_MAGIC 0x534f5041 /* "SOPA" */

/* In words of 32 bits: a processor that reads a word which it has just written in parts waits. */
struct stamp {
	__be32 number;
	__be32 seconds; /* a time is PTP's, of the host's monotonic clock */
	__be32 nanoseconds;
	__be32 error_ssid;
	/* Zero in a probe. */
	__be32 received_seconds;
	__be32 received_nanoseconds;
	__be32 sender_number;
	__be32 sender_seconds;
	__be32 sender_nanoseconds;
	__be32 sender_error; /* in the first half */
	__be32 sender_ttl; /* in the first byte */
};

struct tlv {
	__be32 head;
	__be32 magic;
	__u8 up1;
	__u8 up2;
	__be16 answers; /* zero in a probe; in an answer how many the host has made in the second before */
	__u32 secret; /* of the probing agent: nobody else can make answers that it reads */
};

/* What follows the IPv4 header. */
struct datagram {
	struct udphdr udp;
	struct stamp stamp;
	struct tlv tlv;
};

#define PLAIN_BYTES (ETH_HLEN + sizeof(struct iphdr) + sizeof(struct datagram))
#define OPTION_BYTES (PLAIN_BYTES + sizeof(struct label))

/* `Settings` in probing/programs.py. */
struct probe_settings {
	__u64 key; /* of hashes: odd, and nobody else's */
	__be32 address; /* of this host */
	__be32 network; /* of the fabric */
	__be32 netmask;
	__u32 secret;
	__u32 own_secret; /* of self-probes */
	__u32 pause_ns; /* between two packets of a source, in the long run */
	__u32 burst_ns; /* so much of it may be owed */
	__u8 gateway[ETH_ALEN];
	__u8 mac[ETH_ALEN];
	__u8 by_option; /* the carrier is `option` */
	__u8 unused[7];
};

/* Counter numbers: `Seen` in probing/programs.py. */
enum probe_seen {
	ANSWERED,
	TAKEN,
	FULL, /* an answer for which the ring had no room */
	CORRUPT,
	NOT_OURS, /* to another address, or from none of the fabric, or from this host and no self-probe */
	ODD, /* neither a probe nor an answer */
	UNASKED, /* an answer without this agent's secret */
	TOO_MANY, /* of one source */
	FAILED, /* no memory */
	PROBE_SEEN,
};

/* A stream that this host is probed by. */
struct stream_state {
	__u64 key; /* source, SSID, up1, up2; 0: none */
	__u32 answers; /* so far */
	__u32 used; /* when, in units of 2^20 ns */
};

#define WAYS 4

struct stream_set {
	struct stream_state ways[WAYS]; /* 64 bytes: a line of most caches */
};

/* What user space is told of an answer: `Record` in probing/programs.py. */
struct probe_record {
	__u64 arrived_ns;
	__be32 source;
	__be32 answer_number;
	__be32 number;
	__be32 received_seconds;
	__be32 received_nanoseconds;
	__be32 seconds;
	__be32 nanoseconds;
	__be16 ssid;
	__u8 up1;
	__u8 up2;
	__be16 answers;
	__u8 unused[6];
};

/* What this host has answered: in the second of that number, of 2^30 ns, so far, and in the one before. */
struct answered {
	__u32 second;
	__u32 count;
	__u32 before;
};

#endif
