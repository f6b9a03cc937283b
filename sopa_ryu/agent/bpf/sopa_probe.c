/*
 * tc ingress of a host's interface, before all other programs (docs/probes.md): turns probes of other hosts round onto the switches that
 * they came by, and hands answers to this host's own probes to its agent, and its self-probes, whose destination is this host itself. All
 * other packets pass.
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
#define DONT_FRAGMENT 0x4000
/* Not synchronized, PTP, multiplier 1; of the coarse clock 2^26 times 2^-32 s, more than its tick. */
#define ERROR_ESTIMATE 0x4001
#define COARSE_ESTIMATE 0x5a01
#define PRECISE_EACH 8
#define CONTROL 7 /* TC_PRIO_CONTROL */
#define BUCKETS 4096
#define SETS 2048
#define SECOND 1000000000ULL

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct probe_settings);
} probe_settings SEC(".maps");

/*
 * Hashes are products with an odd number that is random in each run of an agent (multiply-shift hashing): any two keys share a place by
 * chance only, and nobody can choose whom to share one with.
 */

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
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct answered);
} probe_answered SEC(".maps");

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

/* Frames with everything in its place for 32-bit access, without and with a label as an option. */
struct plain_frame {
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

/* The parts of either. */
struct frame {
	struct ethhdr *eth;
	struct iphdr *ip;
	struct label *label; /* null: none */
	struct datagram *datagram;
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

static __always_inline __u64 header_sum(const struct iphdr *ip, const struct label *label)
{
	return sum(ip, sizeof(*ip)) + (label ? sum(label, sizeof(*label)) : 0);
}

static __always_inline int is_intact(const struct frame *its)
{
	return folded(header_sum(its->ip, its->label)) == 0xffff && folded(datagram_sum(its->ip, its->datagram)) == 0xffff;
}

/* -- reading -------------------------------------------------------------------------------------------------------------------- */

/* Returns nonzero for a probe or an answer. */
static __always_inline int is_ours(const struct frame *its, __u32 bytes)
{
	const struct datagram *of = its->datagram;
	const struct iphdr *ip = its->ip;

	if (ip->version != 4 || ip->ihl != (its->label ? 6 : 5) || ip->protocol != IPPROTO_UDP ||
	    ip->frag_off & bpf_htons(FRAGMENT_BITS) || bpf_ntohs(ip->tot_len) != bytes - ETH_HLEN)
		return 0;
	if (its->label && (its->label->type != OPTION_TYPE || its->label->length != OPTION_LENGTH))
		return 0;
	return of->udp.dest == bpf_htons(PROBE_PORT) && of->udp.source == bpf_htons(PROBE_PORT) &&
	       of->udp.len == bpf_htons(sizeof(*of)) && (of->tlv.head & bpf_htonl(~TLV_FLAGS)) == bpf_htonl(TLV_HEAD) &&
	       of->tlv.magic == bpf_htonl(TLV_MAGIC);
}

/* A session-sender sets the flag, and leaves the fields of the reflector empty. */
static __always_inline int is_probe(const struct datagram *of)
{
	const struct stamp *stamp = &of->stamp;

	return of->tlv.head == bpf_htonl(TLV_UNRECOGNIZED | TLV_HEAD) &&
	       !sum(&stamp->received_seconds, sizeof(*stamp) - __builtin_offsetof(struct stamp, received_seconds));
}

/* Returns nonzero if a source has sent more than it may: a forged flood makes no host answer without end. */
static __always_inline int is_too_many(const struct probe_settings *set, __be32 source, __u64 now)
{
	__u32 at = source * set->key >> 52;
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
static __always_inline __u32 next_number(const struct frame *its, const struct probe_settings *settings, __u64 now)
{
	const struct tlv *tlv = &its->datagram->tlv;
	__u32 rest = bpf_ntohl(its->datagram->stamp.error_ssid) << 16 | (__u32)tlv->up1 << 8 | tlv->up2;
	__u64 key = (__u64)its->ip->saddr << 32 | rest;
	__u32 at = key * settings->key >> 53, used = now >> 20;
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

/* Counts an answer; returns how many there were in the last whole second. Processors that count at once may lose some. */
static __always_inline __be16 answers_before(__u64 now)
{
	struct answered *all;
	__u32 zero = 0, second = now >> 30;

	all = bpf_map_lookup_elem(&probe_answered, &zero);
	if (!all)
		return 0;
	if (all->second != second) {
		all->before = all->second + 1 == second ? all->count : 0;
		all->second = second;
		all->count = 0;
	}
	all->count++;
	return bpf_htons(all->before > 0xffff ? 0xffff : all->before);
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

/* The checksum of what had this one before words with the sum `before` became words with the sum `after` (RFC 1624). */
static __always_inline __u16 adjusted(__u16 check, __u64 before, __u64 after)
{
	return ~folded((__u16)~check + (__u16)~folded(before) + after);
}

/*
 * Makes an answer of the probe, but for its IPv4 header. The precise clock takes half as long as all of this, so that it stamps some answers
 * only: enough to tell delays out and back apart.
 */
static __always_inline void fill(struct datagram *of, __u32 number, __u8 ttl, __u64 now)
{
	int precise = number % PRECISE_EACH == 0;
	struct stamp *stamp = &of->stamp;
	__u32 nanoseconds, seconds;
	__u64 before, after;

	before = (__u64)stamp->number + stamp->seconds + stamp->nanoseconds + stamp->error_ssid + of->tlv.head + of->tlv.answers;
	stamp->sender_number = stamp->number;
	stamp->sender_seconds = stamp->seconds;
	stamp->sender_nanoseconds = stamp->nanoseconds;
	stamp->sender_error = stamp->error_ssid & bpf_htonl(0xffff0000);
	stamp->sender_ttl = bpf_htonl((__u32)ttl << 24);
	after = before - stamp->error_ssid - of->tlv.head - of->tlv.answers; /* the first three are still there */
	seconds = seconds_of(precise ? bpf_ktime_get_ns() : now, &nanoseconds);
	stamp->number = bpf_htonl(number);
	stamp->received_seconds = stamp->seconds = bpf_htonl(seconds);
	stamp->received_nanoseconds = stamp->nanoseconds = bpf_htonl(nanoseconds);
	stamp->error_ssid = (stamp->error_ssid & bpf_htonl(0xffff)) | bpf_htonl((precise ? ERROR_ESTIMATE : COARSE_ESTIMATE) << 16);
	of->tlv.head = bpf_htonl(TLV_HEAD);
	of->tlv.answers = answers_before(now);
	after += (__u64)stamp->number + 2ULL * stamp->seconds + 2ULL * stamp->nanoseconds + stamp->error_ssid + stamp->sender_error +
		 stamp->sender_ttl + of->tlv.head + of->tlv.answers;
	of->udp.check = adjusted(of->udp.check, before, after) ?: 0xffff;
}

/* Writes an IPv4 header by words, with the addresses of the probe the other way round. */
static __always_inline void turn(struct iphdr *ip, const struct label *label)
{
	__be32 *words = (__be32 *)ip, source = ip->saddr, destination = ip->daddr;
	__u32 bytes = (label ? OPTION_BYTES : PLAIN_BYTES) - ETH_HLEN;
	__be32 first = bpf_htonl((label ? 0x46 : 0x45) << 24 | PROBE_TOS << 16 | bytes), second = bpf_htonl(DONT_FRAGMENT);
	__be32 third = bpf_htonl(255U << 24 | IPPROTO_UDP << 16);
	__u64 total = (__u64)first + second + third + source + destination;

	if (label)
		total += *(const __u32 *)label;
	words[0] = first;
	words[1] = second;
	words[2] = third | bpf_htonl(bpf_ntohs(~folded(total)));
	words[3] = destination;
	words[4] = source;
}

static __always_inline void address(const struct frame *its, const struct probe_settings *set, const struct label *label)
{
	its->eth->h_proto = bpf_htons(ETH_P_IP);
	__builtin_memcpy(its->eth->h_dest, set->gateway, ETH_ALEN);
	if (set->by_option) {
		__builtin_memcpy(its->eth->h_source, set->mac, ETH_ALEN);
	} else {
		its->eth->h_source[0] = CARRIER_PREFIX_0;
		its->eth->h_source[1] = CARRIER_PREFIX_1;
		__builtin_memcpy(its->eth->h_source + 2, label, sizeof(*label));
	}
}

/* Writes the answer over the probe, with an option where the carrier is one; returns nonzero without memory for it. */
static __always_inline int write(struct __sk_buff *skb, const struct frame *its, const struct probe_settings *set)
{
	struct label label = { OPTION_TYPE, OPTION_LENGTH, its->datagram->tlv.up1, its->datagram->tlv.up2 };
	struct option_frame longer;

	address(its, set, &label);
	if (its->label) { /* it does no harm with the other carrier */
		*its->label = label;
		turn(its->ip, its->label);
		return bpf_skb_store_bytes(skb, 0, its->eth, OPTION_BYTES, 0);
	}
	if (!set->by_option) {
		turn(its->ip, (void *)0);
		return bpf_skb_store_bytes(skb, 0, its->eth, PLAIN_BYTES, 0);
	}
	if (bpf_skb_adjust_room(skb, sizeof(label), BPF_ADJ_ROOM_NET, 0))
		return -1;
	longer.eth = *its->eth;
	longer.ip = *its->ip;
	longer.label = label;
	longer.datagram = *its->datagram;
	turn(&longer.ip, &longer.label);
	return bpf_skb_store_bytes(skb, 0, &longer.eth, OPTION_BYTES, 0);
}

static __always_inline int answer(struct __sk_buff *skb, const struct frame *its, const struct probe_settings *set, __u64 now)
{
	fill(its->datagram, next_number(its, set, now), its->ip->ttl, now);
	if (write(skb, its, set))
		return seen(FAILED, TC_ACT_SHOT);
	skb->mark = ANSWER_MARK;
	skb->priority = CONTROL;
	return seen(ANSWERED, bpf_redirect(skb->ifindex, 0));
}

/* -- taking answers ------------------------------------------------------------------------------------------------------------- */

/* A self-probe has its fields for an answer empty: it is taken for one that was made when the probe was sent. */
static __always_inline int take(const struct frame *its, int is_own)
{
	const struct datagram *of = its->datagram;
	struct probe_record record = {
		.arrived_ns = bpf_ktime_get_ns(),
		.source = its->ip->saddr,
		.answer_number = of->stamp.number,
		.number = is_own ? of->stamp.number : of->stamp.sender_number,
		.received_seconds = is_own ? of->stamp.seconds : of->stamp.received_seconds,
		.received_nanoseconds = is_own ? of->stamp.nanoseconds : of->stamp.received_nanoseconds,
		.seconds = of->stamp.seconds,
		.nanoseconds = of->stamp.nanoseconds,
		.ssid = bpf_htons(bpf_ntohl(of->stamp.error_ssid)),
		.up1 = of->tlv.up1,
		.up2 = of->tlv.up2,
		.answers = of->tlv.answers,
	};

	/* The agent looks when it sends. Stolen, not dropped: nothing is wrong with it. */
	if (bpf_ringbuf_output(&probe_records, &record, sizeof(record), BPF_RB_NO_WAKEUP))
		return seen(FULL, TC_ACT_SHOT);
	return seen(TAKEN, TC_ACT_STOLEN);
}

/* -- both ----------------------------------------------------------------------------------------------------------------------- */

static __always_inline int decide(struct __sk_buff *skb, const struct frame *its, __u32 bytes)
{
	const struct tlv *tlv = &its->datagram->tlv;
	struct probe_settings *set;
	__be32 source = its->ip->saddr;
	int is_own;
	__u32 zero = 0;
	__u64 now;

	if (!is_ours(its, bytes))
		return TC_ACT_UNSPEC;
	set = bpf_map_lookup_elem(&probe_settings, &zero);
	if (!set)
		return TC_ACT_UNSPEC;
	if (its->ip->daddr != set->address)
		return seen(NOT_OURS, TC_ACT_UNSPEC); /* for a container behind this host */
	is_own = source == set->address && is_probe(its->datagram) && tlv->secret == set->own_secret;
	if ((source & set->netmask) != set->network || (source == set->address && !is_own))
		return seen(NOT_OURS, TC_ACT_SHOT);
	if (!is_intact(its))
		return seen(CORRUPT, TC_ACT_SHOT);
	now = bpf_ktime_get_coarse_ns();
	if (!is_own && is_probe(its->datagram))
		return is_too_many(set, source, now) ? seen(TOO_MANY, TC_ACT_SHOT) : answer(skb, its, set, now);
	if (!is_own && tlv->head & bpf_htonl(TLV_FLAGS))
		return seen(ODD, TC_ACT_UNSPEC);
	if (!is_own && tlv->secret != set->secret)
		return seen(UNASKED, TC_ACT_SHOT);
	return is_too_many(set, source, now) ? seen(TOO_MANY, TC_ACT_SHOT) : take(its, is_own);
}

static __always_inline int handle(struct __sk_buff *skb)
{
	__u32 bytes = skb->len;

	if (bytes != PLAIN_BYTES && bytes != OPTION_BYTES)
		return TC_ACT_UNSPEC;
	if (skb->protocol != bpf_htons(ETH_P_IP) || skb->vlan_present)
		return TC_ACT_UNSPEC;
	if (bytes == PLAIN_BYTES) {
		struct plain_frame whole;
		struct frame its = { &whole.eth, &whole.ip, (void *)0, &whole.datagram };

		if (bpf_skb_load_bytes(skb, 0, &whole.eth, PLAIN_BYTES))
			return TC_ACT_UNSPEC;
		return decide(skb, &its, bytes);
	} else {
		struct option_frame whole;
		struct frame its = { &whole.eth, &whole.ip, &whole.label, &whole.datagram };

		if (bpf_skb_load_bytes(skb, 0, &whole.eth, OPTION_BYTES))
			return TC_ACT_UNSPEC;
		return decide(skb, &its, bytes);
	}
}

SEC("tc")
int sopa_probe(struct __sk_buff *skb)
{
	return handle(skb);
}

char LICENSE[] SEC("license") = "Apache-2.0"; /* no helper in use asks for the GPL */
