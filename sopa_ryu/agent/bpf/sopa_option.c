/*
 * The `option` carrier (docs/wire-format.md) at a host's interface. tc egress writes the next path of the packet's flow into the IPv4
 * header, as its first option; tc ingress takes such an option out again. A packet that cannot be labelled goes out unchanged, and is
 * counted.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "ack.h"
#include "burst.h"
#include "choose.h"
#include "label.h"
#include "maps.h"
#include "mtu.h"
#include "packet.h"
#include "probe.h"
#include "sent.h"

#define MAX_IHL 15
#define MAX_BYTES 65535 /* of an IPv4 packet */
#define LABEL_BYTES sizeof(struct label)

struct header {
	struct iphdr ip;
	struct label option;
};

/* The checksum after `added` has been added to the sum of the header's 16-bit words (RFC 1624). */
static __always_inline __sum16 adjusted(__sum16 check, __u32 added)
{
	__u32 sum = (__u16)~bpf_ntohs(check) + added;

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return bpf_htons((__u16)~sum);
}

/* Copies the IPv4 header, without its options. */
static __always_inline int read_header(struct __sk_buff *skb, __u32 l3, struct iphdr *ip)
{
	struct iphdr *from = header_at(skb, l3, sizeof(*from));

	if (!from)
		return bpf_skb_load_bytes(skb, l3, ip, sizeof(*ip));
	__builtin_memcpy(ip, from, sizeof(*ip));
	return 0;
}

/* LABELLED if the packet can have four bytes more. */
static __always_inline enum reason room(struct __sk_buff *skb, __u32 l3, const struct iphdr *ip)
{
	__u32 bytes = bpf_ntohs(ip->tot_len);

	if (bytes < ip->ihl * 4 || bytes > skb->len - l3)
		return MALFORMED;
	if (ip->ihl >= MAX_IHL)
		return NO_ROOM;
	/* The kernel cuts a burst into segments that are smaller by as much. */
	if (skb->gso_size ? bytes + LABEL_BYTES > MAX_BYTES : !fits(bytes + LABEL_BYTES))
		return TOO_BIG;
	return LABELLED;
}

/* The kernel opens no room behind a VLAN tag in the frame: the tag moves to the packet's metadata, where the kernel keeps tags itself. */
static __always_inline int untag(struct __sk_buff *skb, struct place *at)
{
	if (!at->tagged)
		return 0;
	at->l3 = ETH_HLEN;
	return bpf_skb_vlan_pop(skb);
}

static __always_inline int tag(struct __sk_buff *skb, const struct place *at)
{
	return at->tagged ? bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), bpf_ntohs(at->tci)) : 0;
}

static __always_inline enum reason write(struct __sk_buff *skb, struct place *at, struct header *header)
{
	__u16 hops = header->option.up1 << 8 | header->option.up2;

	header->option.type = OPTION_TYPE;
	header->option.length = OPTION_LENGTH;
	header->ip.ihl++;
	header->ip.tot_len = bpf_htons(bpf_ntohs(header->ip.tot_len) + LABEL_BYTES);
	header->ip.check = adjusted(header->ip.check, 0x0100 + LABEL_BYTES + (OPTION_TYPE << 8 | OPTION_LENGTH) + hops);
	if (bpf_skb_adjust_room(skb, LABEL_BYTES, BPF_ADJ_ROOM_NET, 0))
		return NOT_WRITABLE;
	if (bpf_skb_store_bytes(skb, at->l3, header, sizeof(*header), 0))
		return REASONS; /* room without an option: malformed */
	return LABELLED;
}

static __always_inline enum reason label(struct __sk_buff *skb, __u32 *device)
{
	__u32 segments = skb->gso_segs;
	struct choice choice = {};
	struct path_word *path;
	struct header header;
	struct flow_key key = {};
	enum reason reason;
	struct place at = {};

	path = path_in_burst(skb, &key, &at, &choice);
	if (!path) {
		reason = read_flow(skb, &key, &at);
		if (reason != LABELLED)
			return reason;
		if (at.tagged && skb->vlan_present) /* two tags */
			return NOT_IPV4;
		reason = consider(&key, is_forwarded(skb, protocol_of(&key)), &choice);
		if (reason != LABELLED)
			return reason;
		if (is_spare_ack(skb, at.l4, &key, &choice))
			return ACK_FILTERED;
		*device = cut(skb, &at, &key, &choice);
		if (*device)
			return CUT;
	}
	if (read_header(skb, at.l3, &header.ip))
		return MALFORMED;
	reason = room(skb, at.l3, &header.ip);
	if (reason != LABELLED)
		return reason;
	if (!path) {
		path = next_path(&choice, &key, skb->len);
		if (!path)
			return NO_PATH;
		note_sent(skb, at.l4, &key, &choice, path);
	}
	header.option.up1 = path->up1;
	header.option.up2 = path->up2;
	if (untag(skb, &at))
		return NOT_WRITABLE;
	reason = write(skb, &at, &header);
	if (tag(skb, &at))
		return REASONS;
	if (reason != LABELLED)
		return reason;
	if (leaves(path) && bpf_skb_store_bytes(skb, 0, path->gateway, sizeof(path->gateway), 0))
		return NOT_WRITABLE; /* with an option: the edge switch chooses the gateway */
	count_path(path->up1, path->up2);
	if (!choice.sprayed)
		count(HASHED);
	else if (segments > 1)
		count(GSO);
	return LABELLED;
}

SEC("tc")
int sopa_option(struct __sk_buff *skb)
{
	__u32 device = 0;
	enum reason reason;

	if (is_answer(skb))
		return TC_ACT_UNSPEC;
	reason = label(skb, &device);
	if (reason == REASONS) { /* no memory half-way: a malformed packet is not sent */
		count(NOT_WRITABLE);
		return TC_ACT_SHOT;
	}
	return verdict_of(reason, device);
}

SEC("tc")
int sopa_strip(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data;
	struct header header;
	__u32 bytes, added;

	/* The kernel has already moved a VLAN tag to the metadata. */
	if (data + ETH_HLEN + sizeof(header) > (void *)(long)skb->data_end) {
		if (bpf_skb_load_bytes(skb, ETH_HLEN, &header, sizeof(header)))
			return TC_ACT_UNSPEC;
	} else {
		__builtin_memcpy(&header, data + ETH_HLEN, sizeof(header));
	}
	if (skb->protocol != bpf_htons(ETH_P_IP) || header.ip.version != 4 || header.ip.ihl < 6)
		return TC_ACT_UNSPEC;
	if (header.option.type != OPTION_TYPE || header.option.length != OPTION_LENGTH)
		return TC_ACT_UNSPEC;
	bytes = bpf_ntohs(header.ip.tot_len);
	if (bytes < header.ip.ihl * 4 || bytes > skb->len - ETH_HLEN)
		return TC_ACT_UNSPEC; /* IP will drop it */
	added = (0xffff - 0x0100) + (0xffff - LABEL_BYTES) + (0xffff - (OPTION_TYPE << 8 | OPTION_LENGTH)) +
		(0xffff - (header.option.up1 << 8 | header.option.up2));
	header.ip.ihl--;
	header.ip.tot_len = bpf_htons(bytes - LABEL_BYTES);
	header.ip.check = adjusted(header.ip.check, added);
	if (bpf_skb_adjust_room(skb, -(__s32)LABEL_BYTES, BPF_ADJ_ROOM_NET, 0)) {
		count(NOT_STRIPPED);
		return TC_ACT_UNSPEC; /* IP accepts an unknown option */
	}
	/* The sum of the packet that a network card gave the kernel has to follow. */
	if (bpf_skb_store_bytes(skb, ETH_HLEN, &header, sizeof(header.ip), BPF_F_RECOMPUTE_CSUM)) {
		count(NOT_STRIPPED);
		return TC_ACT_SHOT;
	}
	count(STRIPPED);
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Apache-2.0"; /* no helper in use asks for the GPL */
