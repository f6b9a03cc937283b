/*
 * CFR at a host (docs/cfr.md): TCP's data leaves in the slots that the arbiter has granted, on the paths granted with them.
 *
 * The gate is an egress program of cgroup v2: of all places that may refuse a packet it is the one that TCP does not take for congestion.
 * A drop at tc egress halves the window (tcp_enter_cwr); this one leaves the data in the socket as if it had not been tried. So a packet
 * that is held is not lost, and the iterator at the begin of the socket's slot has TCP send it.
 *
 * Where the interface has the qdisc fq (ahead_ns), a packet passes a little before its slot, with the slot's begin as its departure time.
 * TCP's own departure times, by which fq paces, are kept: a packet belongs to the slot in which fq lets it go.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "cfr.h"
#include "choose.h"
#include "label.h"
#include "maps.h"
#include "packet.h"
#include "probe.h"
#include "sent.h"
#include "srv6.h"

#define PASS 1
#define DROP_UNSEEN 0 /* and no word of congestion: BPF_CGROUP_INET_EGRESS gives TCP -EPERM instead of NET_XMIT_DROP */
#define SOL_TCP 6
#define TCP_NODELAY 1
#define LISTENS 10 /* TCP_LISTEN */

/* A packet with data, as the gate sees it. */
struct data {
	__u32 destination; /* host order */
	__u32 seq;
	__u32 bytes; /* of the frames that are made of it */
	__u32 packets;
};

static __always_inline struct cfr_settings *settings(void)
{
	return word(&cfr_settings, 0);
}

/* As count(), for a program that may be interrupted by itself: TCP sends from system calls and from interrupts. */
static __always_inline void count_anywhere(__u32 reason)
{
	__u64 *value = bpf_map_lookup_elem(&counters, &reason);

	if (value)
		__sync_fetch_and_add(value, 1);
}

/* -- slots ---------------------------------------------------------------------------------------------------------------------- */

/* Returns the slot of what leaves at that time, if data is held now at all; the time since the slot's begin in `into`. */
static __always_inline int slot_of(const struct cfr_settings *its, __u64 now, __u64 departs, __u64 *slot, __u64 *into)
{
	__u64 at;

	if (!its->slot_ns || (__s64)(now - its->open_after) >= 0)
		return 0;
	at = departs + its->offset_ns;
	*slot = at / its->slot_ns;
	*into = at - *slot * its->slot_ns;
	return *slot >= its->first_slot;
}

/* Returns when a packet leaves that goes to the qdisc now. */
static __always_inline __u64 departure(const struct __sk_buff *skb, const struct cfr_settings *its, __u64 now)
{
	__u64 its_time = skb->tstamp;

	return its->ahead_ns && (__s64)(its_time - now) > 0 ? its_time : now;
}

/* Returns the entry of a slot if it is granted for this destination. */
static __always_inline struct cfr_slot *granted(__u64 slot, __u32 destination)
{
	struct cfr_slot *entry = word(&cfr_slots, slot % SLOTS);

	return entry && entry->slot == slot && entry->budget && entry->destination == destination ? entry : (void *)0;
}

/* -- the gate ------------------------------------------------------------------------------------------------------------------- */

/*
 * Returns nonzero for a destination, in host order, whose data waits for slots: another host of the fabric. One of IPv6 is in 32 bits
 * (`short_address`), with flags above where it is none.
 */
static __always_inline int is_gated(const struct cfr_settings *its, __u64 destination)
{
	void *table = table_in_force();
	struct fabric_word *fabric = table ? word(table, FABRIC_WORD) : (void *)0;

	return fabric && !(destination >> 32) && (destination & fabric->netmask) == fabric->network && destination != its->host;
}

/* Returns the bytes that a frame to a destination is longer by once it leaves. */
static __always_inline __u32 outer_bytes(__u32 destination)
{
	struct srv6_word *own = by_lists(table_in_force());

	return own && (destination >> 8 & 0xffff) != (own->pod << 8 | own->edge) ? OUTER_BYTES : 0;
}

/* Reads the addresses of a TCP packet that begins with its IP header; returns its bytes, or 0 for another packet. */
static __always_inline __u32 read_ip(struct __sk_buff *skb, __u64 *source, __u64 *destination)
{
	__be32 words[10];
	struct iphdr ip;

	if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		struct networks of = networks_in_force();

		if (bpf_skb_load_bytes(skb, 0, words, sizeof(words)) || ((__u8 *)words)[6] != IPPROTO_TCP)
			return 0;
		*source = from_words(words + 2, &of);
		*destination = from_words(words + 6, &of);
		return sizeof(words);
	}
	if (skb->protocol != bpf_htons(ETH_P_IP) || bpf_skb_load_bytes(skb, 0, &ip, sizeof(ip)))
		return 0;
	if (ip.protocol != IPPROTO_TCP || ip.frag_off & bpf_htons(IP_FRAGMENT_BITS) || ip.ihl < 5)
		return 0;
	*source = bpf_ntohl(ip.saddr);
	*destination = bpf_ntohl(ip.daddr);
	return ip.ihl * 4;
}

/* Reads a packet, which begins with its IP header; returns 0 for one that is not gated. */
static __always_inline int read_data(struct __sk_buff *skb, const struct cfr_settings *its, struct data *to)
{
	__u64 source = 0, destination = 0;
	__u32 header = read_ip(skb, &source, &destination), headers;
	struct tcphdr tcp;

	if (!header || source != its->host || bpf_skb_load_bytes(skb, header, &tcp, sizeof(tcp)))
		return 0;
	headers = header + tcp.doff * 4;
	if (skb->len <= headers || tcp.syn || tcp.rst)
		return 0;
	if (!is_gated(its, destination))
		return 0;
	to->destination = destination;
	to->seq = bpf_ntohl(tcp.seq);
	to->packets = skb->gso_segs > 1 ? skb->gso_segs : 1;
	to->bytes = skb->len + ETH_HLEN + (to->packets - 1) * (ETH_HLEN + headers) + to->packets * outer_bytes(destination);
	return 1;
}

static __always_inline void count_sent(const struct data *data)
{
	__u64 *sent = bpf_map_lookup_elem(&cfr_sent, &data->destination), none = 0;

	if (!sent) {
		bpf_map_update_elem(&cfr_sent, &data->destination, &none, BPF_NOEXIST);
		sent = bpf_map_lookup_elem(&cfr_sent, &data->destination);
	}
	if (sent)
		__sync_fetch_and_add(sent, data->bytes);
}

/*
 * Returns nonzero for data that does not wait: the first packet of a connection, and what is sent again. TCP doubles its timeout when a
 * retransmission is refused, and the iterator cannot have it repeat one.
 */
static __always_inline int passes_in_guard(const struct tcp_sock *tcp, const struct data *data)
{
	if (data->seq != tcp->snd_nxt)
		return 1;
	/* bytes_acked counts the SYN at the end that has sent it first */
	return data->packets == 1 && tcp->snd_una == tcp->snd_nxt && tcp->bytes_acked <= 1;
}

/* Returns the credit of a socket; null before it had data waiting for a slot. */
static __always_inline __s64 *credit_of(struct bpf_sock *sk)
{
	struct bpf_sock *full = sk ? bpf_sk_fullsock(sk) : (void *)0;

	return full ? bpf_sk_storage_get(&cfr_credits, full, 0, 0) : (void *)0;
}

/* Returns nonzero unless it is the turn of other connections to the same destination. */
static __always_inline int has_turn(const __s64 *credit, const struct data *data)
{
	struct cfr_turns *turns = credit ? bpf_map_lookup_elem(&cfr_turns, &data->destination) : (void *)0;

	return !turns || *credit >= turns->floor;
}

/* Takes the packet's bytes out of the budget of a slot; returns 0 if it is not its destination's, used up, or nearly over. */
static __always_inline int take(const struct cfr_settings *its, const struct data *data, __u64 slot, __u64 into)
{
	struct cfr_slot *entry = granted(slot, data->destination);
	__u32 budget;

	if (!entry)
		return 0;
	budget = entry->budget;
	if (into + data->bytes * its->slot_ns / budget > its->slot_ns + its->late_ns)
		return 0; /* it would still be on the link in the next slot */
	if (__sync_fetch_and_add(&entry->used, data->bytes) + data->bytes <= budget)
		return 1;
	__sync_fetch_and_add(&entry->used, -data->bytes);
	return 0;
}

/* Returns nonzero if packets to this destination have been let pass ahead of a slot: others that follow them must not leave before. */
static __always_inline int is_begun(__u64 slot, __u32 destination)
{
	struct cfr_slot *entry = granted(slot, destination);

	return entry && entry->used;
}

/* Takes the packet's bytes out of the budget of the slot in which it leaves, or else of the next one, for whose begin fq then keeps it. */
static __always_inline int take_ahead(struct __sk_buff *skb, const struct cfr_settings *its, const struct data *data, __u64 departs,
				      __u64 slot, __u64 into)
{
	__u64 left = its->slot_ns - into;

	if (left > its->ahead_ns)
		return take(its, data, slot, into);
	if (!is_begun(slot + 1, data->destination) && take(its, data, slot, into))
		return 1;
	if (!take(its, data, slot + 1, 0))
		return 0;
	skb->tstamp = departs + left;
	return 1;
}

static __always_inline enum reason judge(struct __sk_buff *skb, const struct cfr_settings *its, const struct data *data)
{
	__u64 now = bpf_ktime_get_ns(), departs = departure(skb, its, now), slot, into;
	struct bpf_sock *sk = skb->sk;
	__s64 *credit;
	struct tcp_sock *tcp = sk ? bpf_skc_to_tcp_sock(sk) : (void *)0;

	if (its->netns_cookie && (!tcp || ((struct sock_common *)tcp)->skc_net.net->net_cookie != its->netns_cookie))
		return REASONS;
	if (!slot_of(its, now, departs, &slot, &into))
		return GATE_OPEN;
	credit = credit_of(sk);
	if (has_turn(credit, data) && take_ahead(skb, its, data, departs, slot, into)) {
		if (credit)
			__sync_fetch_and_add(credit, -(__s64)data->bytes);
		return GRANTED;
	}
	return tcp && passes_in_guard(tcp, data) ? PASSED_IN_GUARD : HELD;
}

SEC("cgroup_skb/egress")
int sopa_cfr_gate(struct __sk_buff *skb)
{
	struct cfr_settings *its = settings();
	enum reason reason;
	struct data data;

	if (!its || !read_data(skb, its, &data))
		return PASS;
	reason = judge(skb, its, &data);
	if (reason == REASONS) /* of another network namespace */
		return PASS;
	count_anywhere(reason);
	if (reason == HELD)
		return DROP_UNSEEN;
	count_sent(&data);
	return PASS;
}

/* -- labels --------------------------------------------------------------------------------------------------------------------- */

/* Returns nonzero for a packet with TCP data. */
static __always_inline int has_data(struct __sk_buff *skb, const struct place *at)
{
	__u8 doff;

	if (bpf_skb_load_bytes(skb, at->l4 + 12, &doff, 1))
		return 0;
	return skb->gso_segs > 1 || skb->len > at->l4 + (doff >> 4) * 4;
}

/*
 * Returns the slot's entry that has let a packet to this destination pass, whose path it is to take; null if there is none. The slot may
 * have ended since. With a departure time it is the slot of that time; it may have got a little before the slot since the agent has
 * corrected its clock.
 */
static __always_inline struct cfr_slot *grant_of(struct __sk_buff *skb, const struct flow_key *key, const struct place *at)
{
	struct cfr_settings *its = settings();
	__u64 now = bpf_ktime_get_ns(), slot, into;
	struct cfr_slot *entry;

	if (protocol_of(key) != IPPROTO_TCP || key->proto & (FROM_OUTSIDE | TO_OUTSIDE) || !its || key->saddr != its->host)
		return (void *)0;
	if (!has_data(skb, at))
		return (void *)0;
	if (!slot_of(its, now, departure(skb, its, now), &slot, &into))
		return (void *)0;
	entry = granted(slot, key->daddr);
	if (!entry && into <= its->late_ns && slot > its->first_slot)
		entry = granted(slot - 1, key->daddr);
	if (!entry && its->slot_ns - into <= its->ahead_ns)
		entry = granted(slot + 1, key->daddr);
	return entry;
}

/* As `consider`, for a packet whose path is granted: the path may be none of the candidates. */
static __always_inline enum reason consider_granted(const struct flow_key *key, struct choice *found)
{
	found->table = table_in_force();
	if (!found->table)
		return NO_TABLE;
	if (find_candidates(key, found) != LABELLED)
		found->count = 0; /* there is no path to leave */
	return LABELLED;
}

static __always_inline enum reason label(struct __sk_buff *skb)
{
	__u8 source[ETH_ALEN] = { CARRIER_PREFIX_0, CARRIER_PREFIX_1, OPTION_TYPE, OPTION_LENGTH };
	int forwarded;
	__u32 segments = skb->gso_segs;
	struct path_word path = {}, *next;
	struct choice choice = { .sprayed = 1 };
	struct flow_key key = {};
	struct cfr_slot *grant;
	struct srv6_word *own;
	struct inner inner;
	enum reason reason;
	struct place at = {};
	__u64 flags;

	reason = read_flow(skb, &key, &at);
	if (reason != LABELLED)
		return reason;
	forwarded = is_forwarded(skb, protocol_of(&key));
	grant = forwarded ? (void *)0 : grant_of(skb, &key, &at);
	reason = grant ? consider_granted(&key, &choice) : consider(&key, forwarded, &choice);
	if (reason != LABELLED)
		return reason;
	own = by_lists(choice.table);
	if (own) {
		if (at.tagged || skb->vlan_present) /* routers of the fabric know no VLAN */
			return NOT_IPV4;
		reason = read_inner(skb, &at, &key, choice.hash, &inner, &flags);
		if (reason != LABELLED)
			return reason;
	}
	if (grant) {
		path.up1 = grant->up1;
		path.up2 = grant->up2;
	} else {
		next = next_path(&choice, &key, skb->len);
		if (!next)
			return NO_PATH;
		path = *next;
	}
	note_sent(skb, at.l4, &key, &choice, &path);
	if (own) {
		if (put_into(skb, own, &inner, &key, &path, flags))
			return NOT_WRITABLE;
	} else {
		source[4] = path.up1;
		source[5] = path.up2;
		if (leaves(&path) && bpf_skb_store_bytes(skb, 0, path.gateway, sizeof(path.gateway), 0))
			return NOT_WRITABLE;
		if (bpf_skb_store_bytes(skb, ETH_ALEN, source, sizeof(source), 0))
			return NOT_WRITABLE;
	}
	count_path(path.up1, path.up2);
	if (!choice.sprayed)
		count(HASHED);
	else if (segments > 1)
		count(GSO);
	return LABELLED;
}

SEC("tc")
int sopa_srv6_in(struct __sk_buff *skb)
{
	return take_router_error(skb);
}

SEC("tc")
int sopa_cfr(struct __sk_buff *skb)
{
	if (is_carried(skb) && by_lists(table_in_force()))
		return carry_probe(skb);
	if (!is_answer(skb))
		count(label(skb));
	return TC_ACT_UNSPEC; /* on to the filters behind this one */
}

/* -- sockets -------------------------------------------------------------------------------------------------------------------- */

#define INET6 10

/* Returns the destination of a socket, as `short_address`. */
static __always_inline __u64 destination_of(const struct sock_common *sk)
{
	struct networks of;
	__be32 words[4];

	if (sk->skc_family != INET6)
		return bpf_ntohl(sk->skc_daddr);
	for (int i = 0; i < 4; i++)
		words[i] = sk->skc_v6_daddr.in6_u.u6_addr32[i];
	if (!words[0] && !words[1] && words[2] == bpf_htonl(0xffff)) /* IPv4 by a socket of IPv6 */
		return bpf_ntohl(words[3]);
	of = networks_in_force();
	return from_words(words, &of);
}

static __always_inline __u32 unsent(const struct tcp_sock *tcp)
{
	__u32 bytes = tcp->write_seq - tcp->snd_nxt;

	return (__s32)bytes > 0 ? bytes : 0;
}

/* Writes, for each socket of the reader's network namespace with data that waits for slots or will do so, what it has not sent. */
SEC("iter/tcp")
int sopa_cfr_unsent(struct bpf_iter__tcp *each)
{
	struct sock_common *sk = each->sk_common;
	struct cfr_settings *its = settings();
	struct cfr_unsent found = {};
	__u32 payload, segment, headers;
	__u64 destination;
	struct tcp_sock *tcp;

	if (!sk || !its)
		return 0;
	tcp = bpf_skc_to_tcp_sock(sk);
	if (!tcp)
		return 0;
	payload = unsent(tcp);
	segment = tcp->mss_cache; /* payload of a full packet */
	destination = destination_of(sk);
	if (!segment || !payload || !is_gated(its, destination))
		return 0;
	found.destination = destination;
	/* IPv6's header, which is the longer one, where a socket may have either */
	headers = ETH_HLEN + (sk->skc_family == INET6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) + tcp->tcp_header_len +
		  outer_bytes(destination);
	found.bytes = payload + (payload + segment - 1) / segment * headers;
	bpf_seq_write(each->meta->seq, &found, sizeof(found));
	return 0;
}

/* Returns the turns of a slot's destination; those of the slot begin with its first connection. */
static __always_inline struct cfr_turns *turns_of(const struct cfr_slot *entry)
{
	struct cfr_turns *turns = bpf_map_lookup_elem(&cfr_turns, &entry->destination), none = { .floor = 1 };
	struct cfr_slot *last;
	__u64 used;

	if (!turns) {
		bpf_map_update_elem(&cfr_turns, &entry->destination, &none, BPF_NOEXIST);
		turns = bpf_map_lookup_elem(&cfr_turns, &entry->destination);
	}
	if (!turns || turns->slot == entry->slot)
		return turns;
	last = word(&cfr_slots, turns->slot % SLOTS);
	used = last && last->slot == turns->slot ? last->used : 0;
	/* a part of what was sent, which bursts may leave below the budget: with larger ones the first connections would have all turns */
	turns->part = entry->budget;
	if (turns->wanted > entry->budget)
		turns->part = (used > entry->budget / 4 ? used : entry->budget / 4) * entry->budget / turns->wanted;
	turns->floor = turns->best + (__s64)turns->part < 1 ? turns->best + (__s64)turns->part : 1;
	turns->best = -(1LL << 62);
	turns->wanted = 0;
	turns->slot = entry->slot;
	return turns;
}

/* Gives a connection its part of a slot. What it has sent beyond its parts counts, what it has not does not. */
static __always_inline __s64 *give_credit(struct sock_common *sk, const struct cfr_slot *entry, struct cfr_turns *turns, __u64 bytes)
{
	__s64 *credit = bpf_sk_storage_get(&cfr_credits, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);

	if (credit)
		*credit = (*credit < 0 ? *credit : 0) + (__s64)turns->part;
	turns->wanted += bytes < entry->budget ? bytes : entry->budget;
	return credit;
}

/*
 * Has the sockets that send to the destination of this slot, or of the one for which data goes to fq now, do so: TCP sends what it may
 * when Nagle's algorithm is switched off. It is switched on again where it was on. For a socket that listens it writes something, so that
 * its reader can stop there: the kernel shows all of them before the others, and most of the time goes into looking for them.
 */
SEC("iter/tcp")
int sopa_cfr_send(struct bpf_iter__tcp *each)
{
	struct sock_common *sk = each->sk_common;
	struct cfr_settings *its = settings();
	struct cfr_listens listens = {};
	int on = 1, off = 0, was = 0;
	struct cfr_turns *turns;
	struct cfr_slot *entry;
	struct tcp_sock *tcp;
	__u64 now, slot, into, destination;
	__s64 *credit;

	if (sk && sk->skc_state == LISTENS) {
		bpf_seq_write(each->meta->seq, &listens, sizeof(listens));
		return 0;
	}
	if (!sk || !its)
		return 0;
	now = bpf_ktime_get_ns();
	if (!slot_of(its, now, now + its->ahead_ns, &slot, &into))
		return 0;
	destination = destination_of(sk);
	entry = destination >> 32 ? (void *)0 : granted(slot, destination);
	tcp = bpf_skc_to_tcp_sock(sk);
	if (!entry || !tcp || !unsent(tcp))
		return 0;
	turns = turns_of(entry);
	credit = turns ? give_credit(sk, entry, turns, unsent(tcp)) : (void *)0;
	if (bpf_getsockopt(tcp, SOL_TCP, TCP_NODELAY, &was, sizeof(was)))
		was = 1;
	bpf_setsockopt(tcp, SOL_TCP, TCP_NODELAY, &on, sizeof(on));
	if (!was)
		bpf_setsockopt(tcp, SOL_TCP, TCP_NODELAY, &off, sizeof(off));
	if (credit && unsent(tcp) && *credit > turns->best)
		turns->best = *credit;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL"; /* the kernel shows its structures to such programs only (Linux 6.2) */
