/*
 * ECN marks at the ports of a lab's switches (RFC 3168), by the length of a phantom queue: as long as the real one behind it would be,
 * which a program at clsact's egress cannot see. It has the link's rate and the token bucket filter's bucket and limit.
 *
 * The length is kept as the time at which the queue will have sent everything: what rounding loses of a packet is below a nanosecond.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAX_PORTS 64
#define NSEC_PER_SEC 1000000000ULL
#define ECN_MASK 3
#define ECN_NOT_ECT 0
#define ECN_CE 3

/* How a port's link sends; times are those that the link takes for so many bytes. experiments/emulation/phantom_queues.py */
struct port {
	__u64 bytes_per_second;
	__u64 bucket_ns; /* idle time after which the bucket is full */
	__u64 limit_ns;
	__u64 threshold_ns;
};

struct queue {
	struct bpf_spin_lock lock;
	__u32 unused;
	__u64 empty_ns; /* CLOCK_MONOTONIC; in the past while there are tokens left */
	__u64 packets;
	__u64 full; /* packets for which there was no room: the real queue drops them, or has just dropped another */
	__u64 marked;
	__u64 marked_before; /* above the threshold, but marked by an earlier switch */
	__u64 incapable; /* above the threshold, but not ECT, or no IP */
};

/* By index of the interface, which is unique in a network namespace. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_PORTS);
	__type(key, __u32);
	__type(value, struct port);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_PORTS);
	__type(key, __u32);
	__type(value, struct queue);
} queues SEC(".maps");

/* Mark a packet if its sender can respond, and count what became of it. */
static void mark(struct __sk_buff *skb, struct queue *queue)
{
	__be16 first; /* of IPv4 the type of service is the second byte, of IPv6 the traffic class begins half a byte before */
	__u32 ecn = ECN_NOT_ECT;

	if (!bpf_skb_load_bytes(skb, ETH_HLEN, &first, sizeof(first))) {
		if (skb->protocol == bpf_htons(ETH_P_IP))
			ecn = bpf_ntohs(first) & ECN_MASK;
		else if (skb->protocol == bpf_htons(ETH_P_IPV6))
			ecn = bpf_ntohs(first) >> 4 & ECN_MASK;
	}
	if (ecn == ECN_NOT_ECT)
		__sync_fetch_and_add(&queue->incapable, 1);
	else if (ecn == ECN_CE)
		__sync_fetch_and_add(&queue->marked_before, 1);
	else if (bpf_skb_ecn_set_ce(skb))
		__sync_fetch_and_add(&queue->marked, 1);
	else
		__sync_fetch_and_add(&queue->incapable, 1);
}

SEC("tc")
int phantom_queue(struct __sk_buff *skb)
{
	__u32 index = skb->ifindex;
	__u64 now = bpf_ktime_get_ns(), full_bucket, sending;
	struct port *port = bpf_map_lookup_elem(&ports, &index);
	struct queue *queue = bpf_map_lookup_elem(&queues, &index);
	int long_queue;

	if (!port || !queue || !port->bytes_per_second)
		return TC_ACT_UNSPEC;
	full_bucket = now - port->bucket_ns;
	sending = skb->wire_len * NSEC_PER_SEC / port->bytes_per_second;
	bpf_spin_lock(&queue->lock);
	/* Signed differences: soon after a boot the bucket of a slow link has been filling since before time 0. */
	if ((__s64)(queue->empty_ns - full_bucket) < 0)
		queue->empty_ns = full_bucket;
	long_queue = (__s64)(queue->empty_ns - now - port->threshold_ns) > 0;
	if ((__s64)(queue->empty_ns + sending - now - port->limit_ns) <= 0)
		queue->empty_ns += sending;
	else
		queue->full++;
	queue->packets++;
	bpf_spin_unlock(&queue->lock);
	if (long_queue)
		mark(skb, queue);
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Apache-2.0"; /* no helper in use asks for the GPL */
