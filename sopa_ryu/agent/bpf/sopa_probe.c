/*
 * tc ingress of a host's interface, before all other programs (docs/probes.md): turns probes of other hosts round onto the switches that
 * they came by, and hands answers to this host's own probes to its agent. All other packets pass.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "label.h"
#include "probe.h"

#define FRAGMENT_BITS 0x3fff
/* Not synchronized, PTP, multiplier 1; of the coarse clock 2^26 times 2^-32 s, more than its tick. */
#define ERROR_ESTIMATE 0x4001
#define COARSE_ESTIMATE 0x5a01
#define PRECISE_EACH 8
#define CONTROL 7 /* TC_PRIO_CONTROL */
#define BUCKETS 4096
#define SETS 2048
#define GOLDEN 0x9e3779b1 /* 2^32 over the golden ratio */
#define GOLDEN_64 0x9e3779b97f4a7c15ULL
#define SECOND 1000000000ULL

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct probe_settings);
} probe_settings SEC(".maps");

/* Streams by a hash of their keys; of a set that is full the least recently used goes. A hash map of the kernel takes 10 ns longer. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SETS);
	__type(key, __u32);
	__type(value, struct stream_set);
} probe_streams SEC(".maps");

/*
 * When the next packet of a source is due at the rate that each may have. Sources share a place by their hash: of 27,648 hosts seven do,
 * each of which sends this host a few probes a second.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BUCKETS);
	__type(key, __u32);
	__type(value, __u64);
} probe_sources SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} probe_records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PROBE_SEEN);
	__type(key, __u32);
	__type(value, __u64);
} probe_counters SEC(".maps");

/* A frame with everything in its place for 32-bit access. */
struct frame {
	__u16 align;
	struct ethhdr eth;
	struct iphdr ip;
	struct datagram datagram;
};

struct option_frame {
	__u16 align;
	struct ethhdr eth;
	struct iphdr ip;
	struct label label;
	struct datagram datagram;
};

static __always_inline int seen(enum probe_seen what, int verdict)
{
	__u32 at = what;
	__u64 *value = bpf_map_lookup_elem(&probe_counters, &at);

	if (value)
		(*value)++;
	return verdict;
}

/* -- checksums (RFC 1071), in the byte order of memory --------------------------------------------------------------------------- */

static __always_inline __u64 sum(const void *from, __u32 bytes)
{
	const __u32 *words = from;
	__u64 total = 0;

#pragma unroll
	for (__u32 i = 0; i < bytes / 4; i++)
		total += words[i];
	return total;
}

static __always_inline __u16 folded(__u64 total)
{
	total = (total & 0xffffffff) + (total >> 32);
	total = (total & 0xffffffff) + (total >> 32);
	total = (total & 0xffff) + (total >> 16);
	total = (total & 0xffff) + (total >> 16);
	return total;
}

/* Of the datagram with the pseudo header. */
static __always_inline __u64 datagram_sum(const struct iphdr *ip, const struct datagram *datagram)
{
	return sum(datagram, sizeof(*datagram)) + ip->saddr + ip->daddr + bpf_htonl(IPPROTO_UDP << 16 | sizeof(*datagram));
}

static __always_inline int is_intact(const struct frame *its, const struct label *label)
{
	__u64 header = sum(&its->ip, sizeof(its->ip));

	if (its->ip.ihl > 5)
		header += sum(label, sizeof(*label));
	return folded(header) == 0xffff && folded(datagram_sum(&its->ip, &its->datagram)) == 0xffff;
}

/* -- reading -------------------------------------------------------------------------------------------------------------------- */

/* Returns nonzero for a datagram of this host's probes and answers, with a label as an option or without. */
static __always_inline int read(struct __sk_buff *skb, struct frame *its, struct label *label)
{
	__u32 bytes = skb->len, words = bytes == PLAIN_BYTES ? 5 : 6;
	const struct datagram *of = &its->datagram;
	const struct iphdr *ip = &its->ip;

	if (skb->protocol != bpf_htons(ETH_P_IP) || skb->vlan_present)
		return 0;
	if (words == 6) {
		struct option_frame whole;

		if (bpf_skb_load_bytes(skb, 0, &whole.eth, OPTION_BYTES))
			return 0;
		its->ip = whole.ip;
		*label = whole.label;
		its->datagram = whole.datagram;
		if (label->type != OPTION_TYPE || label->length != OPTION_LENGTH)
			return 0;
	} else if (bpf_skb_load_bytes(skb, 0, &its->eth, PLAIN_BYTES)) {
		return 0;
	}
	if (ip->version != 4 || ip->ihl != words || ip->protocol != IPPROTO_UDP || ip->frag_off & bpf_htons(FRAGMENT_BITS) ||
	    bpf_ntohs(ip->tot_len) != bytes - ETH_HLEN)
		return 0;
	return of->udp.dest == bpf_htons(PROBE_PORT) && of->udp.source == bpf_htons(PROBE_PORT) &&
	       of->udp.len == bpf_htons(sizeof(*of)) && of->tlv.type == TLV_TYPE &&
	       of->tlv.length == bpf_htons(sizeof(struct tlv) - 4) && of->tlv.magic == bpf_htonl(TLV_MAGIC);
}

/* A session-sender sets the flag, and leaves the fields of the reflector empty. */
static __always_inline int is_probe(const struct datagram *of)
{
	const struct stamp *stamp = &of->stamp;

	return of->tlv.flags == TLV_UNRECOGNIZED &&
	       !sum(&stamp->received_seconds, sizeof(*stamp) - __builtin_offsetof(struct stamp, received_seconds));
}

/* Returns nonzero if a source has sent more than it may: a forged flood makes no host answer without end. */
static __always_inline int is_too_many(const struct probe_settings *set, __be32 source, __u64 now)
{
	__u32 at = (source * GOLDEN) >> 20;
	__u64 *due = bpf_map_lookup_elem(&probe_sources, &at);
	__u64 from;

	if (!due)
		return 1;
	from = *due;
	if (from > now + set->burst_ns)
		return 1;
	*due = (from > now ? from : now) + set->pause_ns;
	return 0;
}

/* -- answering ------------------------------------------------------------------------------------------------------------------ */

/* Returns the number of the next answer of a stream. Two processors that begin streams in the same set at once may lose one of them. */
static __always_inline __u32 next_number(const struct frame *its, __u64 now)
{
	const struct tlv *tlv = &its->datagram.tlv;
	__u32 rest = (__u32)its->datagram.stamp.ssid << 16 | (__u32)tlv->up1 << 8 | tlv->up2;
	__u64 key = (__u64)its->ip.saddr << 32 | rest;
	__u32 at = key * GOLDEN_64 >> 53, used = now >> 20;
	struct stream_set *set = bpf_map_lookup_elem(&probe_streams, &at);
	struct stream_state *oldest;

	if (!set)
		return 0;
	oldest = &set->ways[0];
#pragma unroll
	for (int i = 0; i < WAYS; i++) {
		struct stream_state *one = &set->ways[i];

		if (one->key == key) {
			one->used = used;
			return __sync_fetch_and_add(&one->answers, 1);
		}
		if (used - one->used > used - oldest->used)
			oldest = one;
	}
	oldest->key = key;
	oldest->answers = 1;
	oldest->used = used;
	return 0;
}

/*
 * Returns the seconds of a time of less than 2^62 ns (146 years), the rest in `left`. A division takes the processor longer than all of
 * this: 2^29 ns are 2^30.1 / 2^31 s.
 */
static __always_inline __u32 seconds_of(__u64 time, __u32 *left)
{
	__u64 seconds = (time >> 29) * 1152921504 >> 31;

	time -= seconds * SECOND;
#pragma unroll
	for (int i = 0; i < 4; i++) { /* one second too few, and one more for each 2^31 parts of it */
		if (time >= SECOND) {
			time -= SECOND;
			seconds++;
		}
	}
	*left = time;
	return seconds;
}

/* The precise clock takes a third of all the time, so that it stamps some answers only: enough to tell delays out and back apart. */
static __always_inline void fill(struct datagram *of, __u32 number, __u8 ttl, __u64 now)
{
	int precise = number % PRECISE_EACH == 0;
	struct stamp *stamp = &of->stamp;
	__u32 nanoseconds, seconds;

	seconds = seconds_of(precise ? bpf_ktime_get_ns() : now, &nanoseconds);

	stamp->sender_number = stamp->number;
	stamp->sender_seconds = stamp->seconds;
	stamp->sender_nanoseconds = stamp->nanoseconds;
	stamp->sender_error = stamp->error;
	stamp->sender_ttl = ttl;
	stamp->number = bpf_htonl(number);
	stamp->received_seconds = stamp->seconds = bpf_htonl(seconds);
	stamp->received_nanoseconds = stamp->nanoseconds = bpf_htonl(nanoseconds);
	stamp->error = precise ? bpf_htons(ERROR_ESTIMATE) : bpf_htons(COARSE_ESTIMATE);
	of->tlv.flags = 0;
}

static __always_inline void address(struct frame *its, const struct probe_settings *set, int has_option)
{
	struct iphdr *ip = &its->ip;
	__be32 source = ip->saddr;

	its->eth.h_proto = bpf_htons(ETH_P_IP);
	__builtin_memcpy(its->eth.h_dest, set->gateway, ETH_ALEN);
	if (set->by_option) {
		__builtin_memcpy(its->eth.h_source, set->mac, ETH_ALEN);
	} else {
		__u8 label[ETH_ALEN] = { CARRIER_PREFIX_0, CARRIER_PREFIX_1, OPTION_TYPE, OPTION_LENGTH,
					 its->datagram.tlv.up1,	its->datagram.tlv.up2 };

		__builtin_memcpy(its->eth.h_source, label, ETH_ALEN);
	}
	ip->saddr = ip->daddr;
	ip->daddr = source;
	ip->tos = PROBE_TOS;
	ip->ttl = 255;
	ip->ihl = has_option ? 6 : 5;
	ip->tot_len = bpf_htons((has_option ? OPTION_BYTES : PLAIN_BYTES) - ETH_HLEN);
	ip->check = 0;
}

/* Writes the answer over the probe; returns nonzero without memory for it. */
static __always_inline int write(struct __sk_buff *skb, struct frame *its, const struct probe_settings *set, int had_option)
{
	int has_option = had_option || set->by_option; /* an option that came in does no harm */
	struct option_frame whole = { .label = { OPTION_TYPE, OPTION_LENGTH, its->datagram.tlv.up1, its->datagram.tlv.up2 } };
	__u64 header;

	address(its, set, has_option);
	its->datagram.udp.check = 0;
	its->datagram.udp.check = ~folded(datagram_sum(&its->ip, &its->datagram)) ?: 0xffff;
	header = sum(&its->ip, sizeof(its->ip));
	if (!has_option) {
		its->ip.check = ~folded(header);
		return bpf_skb_store_bytes(skb, 0, &its->eth, PLAIN_BYTES, 0);
	}
	its->ip.check = ~folded(header + sum(&whole.label, sizeof(whole.label)));
	if (!had_option && bpf_skb_adjust_room(skb, sizeof(whole.label), BPF_ADJ_ROOM_NET, 0))
		return -1;
	whole.eth = its->eth;
	whole.ip = its->ip;
	whole.datagram = its->datagram;
	return bpf_skb_store_bytes(skb, 0, &whole.eth, OPTION_BYTES, 0);
}

static __always_inline int answer(
	struct __sk_buff *skb, struct frame *its, const struct probe_settings *set, int had_option, __u64 now)
{
	fill(&its->datagram, next_number(its, now), its->ip.ttl, now);
	if (write(skb, its, set, had_option))
		return seen(FAILED, TC_ACT_SHOT);
	skb->mark = ANSWER_MARK;
	skb->priority = CONTROL;
	return seen(ANSWERED, bpf_redirect(skb->ifindex, 0));
}

/* -- taking answers ------------------------------------------------------------------------------------------------------------- */

static __always_inline int take(const struct frame *its)
{
	const struct datagram *of = &its->datagram;
	struct probe_record record = {
		.arrived_ns = bpf_ktime_get_ns(),
		.source = its->ip.saddr,
		.answer_number = of->stamp.number,
		.number = of->stamp.sender_number,
		.received_seconds = of->stamp.received_seconds,
		.received_nanoseconds = of->stamp.received_nanoseconds,
		.seconds = of->stamp.seconds,
		.nanoseconds = of->stamp.nanoseconds,
		.ssid = of->stamp.ssid,
		.up1 = of->tlv.up1,
		.up2 = of->tlv.up2,
	};

	/* The agent looks when it sends. Stolen, not dropped: nothing is wrong with it. */
	if (bpf_ringbuf_output(&probe_records, &record, sizeof(record), BPF_RB_NO_WAKEUP))
		return seen(FULL, TC_ACT_SHOT);
	return seen(TAKEN, TC_ACT_STOLEN);
}

static __always_inline int handle(struct __sk_buff *skb)
{
	__u32 bytes = skb->len, zero = 0;
	struct probe_settings *set;
	struct frame its;
	struct label label;
	__u64 now;

	if (bytes != PLAIN_BYTES && bytes != OPTION_BYTES)
		return TC_ACT_UNSPEC;
	if (!read(skb, &its, &label))
		return TC_ACT_UNSPEC;
	set = bpf_map_lookup_elem(&probe_settings, &zero);
	if (!set)
		return TC_ACT_UNSPEC;
	if (its.ip.daddr != set->address)
		return seen(NOT_OURS, TC_ACT_UNSPEC); /* for a container behind this host */
	if ((its.ip.saddr & set->netmask) != set->network || its.ip.saddr == set->address)
		return seen(NOT_OURS, TC_ACT_SHOT);
	if (!is_intact(&its, &label))
		return seen(CORRUPT, TC_ACT_SHOT);
	now = bpf_ktime_get_coarse_ns();
	if (is_probe(&its.datagram))
		return is_too_many(set, its.ip.saddr, now) ? seen(TOO_MANY, TC_ACT_SHOT) :
							     answer(skb, &its, set, bytes != PLAIN_BYTES, now);
	if (its.datagram.tlv.flags)
		return seen(ODD, TC_ACT_UNSPEC);
	if (its.datagram.tlv.secret != set->secret)
		return seen(UNASKED, TC_ACT_SHOT);
	return is_too_many(set, its.ip.saddr, now) ? seen(TOO_MANY, TC_ACT_SHOT) : take(&its);
}

SEC("tc")
int sopa_probe(struct __sk_buff *skb)
{
	return handle(skb);
}

char LICENSE[] SEC("license") = "Apache-2.0"; /* no helper in use asks for the GPL */
