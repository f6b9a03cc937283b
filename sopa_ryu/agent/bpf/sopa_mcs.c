/*
 * Multi-Channel Scatter (docs/mcs.md): the packets of a TCP connection between two hosts that run it take several channels in turn. Linux
 * leaves room for the option in the header (sopa_mcs_ops.c); the programs at tc fill it in and read it, where it is.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "maps.h"
#include "mcs.h"
#include "mcs_connections.h"
#include "mcs_egress.h"
#include "mcs_ingress.h"
#include "probe.h"
#include "srv6.h"

SEC("tc")
int sopa_mcs(struct __sk_buff *skb)
{
	if (is_carried(skb) && by_lists(table_in_force()))
		return carry_probe(skb);
	if (is_answer(skb))
		return TC_ACT_UNSPEC;
	return verdict_of(scatter(skb), 0);
}

SEC("tc")
int sopa_mcs_in(struct __sk_buff *skb)
{
	int verdict = take_router_error(skb);
	enum reason reason;

	if (verdict != TC_ACT_UNSPEC)
		return verdict;
	reason = take(skb);
	if (reason != REASONS)
		count(reason);
	return TC_ACT_UNSPEC;
}

/* -- clean-up ------------------------------------------------------------------------------------------------------------------- */

struct bpf_map; /* the kernel's */

struct sweep {
	__u64 before_ns;
	__u32 removed;
	__u32 left;
};

static long sweep_one(struct bpf_map *map, const struct connection_key *key, struct mcs_connection *its, struct sweep *its_sweep)
{
	if (its->seen < its_sweep->before_ns) {
		bpf_map_delete_elem(map, key);
		its_sweep->removed++;
	} else {
		its_sweep->left++;
	}
	return 0;
}

static long renew_share(struct bpf_map *map, const __u32 *key, __u32 *begun, void *unused)
{
	*begun = 0;
	return 0;
}

/*
 * Runs by BPF_PROG_TEST_RUN on a frame that contains a sweep behind the Ethernet header. Linux 6.1 has no locks in programs of the type
 * syscall, which would be the one for this.
 */
SEC("tc")
int sopa_mcs_sweep(struct __sk_buff *skb)
{
	struct sweep its;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &its, sizeof(its)))
		return TC_ACT_SHOT;
	its.removed = 0;
	its.left = 0;
	bpf_for_each_map_elem(&mcs_connections, sweep_one, &its, 0);
	bpf_for_each_map_elem(&mcs_begun, renew_share, (void *)0, 0);
	if (bpf_skb_store_bytes(skb, ETH_HLEN, &its, sizeof(its), 0))
		return TC_ACT_SHOT;
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Apache-2.0"; /* no helper in use asks for the GPL */
