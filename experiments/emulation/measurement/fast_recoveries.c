/*
 * Count how often each TCP connection enters fast recovery. The kernel counts this per network namespace only (TCPSackRecovery),
 * but has a tracepoint for it. Polling TCP_INFO every few milliseconds would miss most of the events.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define MAX_FLOWS 65536
#define TCP_CA_RECOVERY 3

/* The members that are read. libbpf relocates their offsets to those of the running kernel (CO-RE). */
struct net {
	__u64 net_cookie;
} __attribute__((preserve_access_index));

typedef struct {
	struct net *net;
} __attribute__((preserve_access_index)) possible_net_t;

struct sock_common {
	__u32 skc_rcv_saddr;
	__u16 skc_num;
	possible_net_t skc_net;
} __attribute__((preserve_access_index));

struct sock {
	struct sock_common __sk_common;
} __attribute__((preserve_access_index));

struct flow {
	__u64 netns; /* cookie */
	__u32 source; /* network order */
	__u16 port;
	__u16 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_FLOWS);
	__type(key, struct flow);
	__type(value, __u64);
} flows SEC(".maps");

SEC("tp_btf/tcp_cong_state_set")
int BPF_PROG(state_set, struct sock *sk, const __u8 state)
{
	struct flow flow = {};
	__u64 none = 0, *entered;

	if (state != TCP_CA_RECOVERY)
		return 0;
	flow.netns = sk->__sk_common.skc_net.net->net_cookie;
	flow.source = sk->__sk_common.skc_rcv_saddr;
	flow.port = sk->__sk_common.skc_num;
	entered = bpf_map_lookup_elem(&flows, &flow);
	if (!entered) {
		bpf_map_update_elem(&flows, &flow, &none, BPF_NOEXIST);
		entered = bpf_map_lookup_elem(&flows, &flow);
	}
	if (entered)
		__sync_fetch_and_add(entered, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL"; /* required by the kernel for tracing */
