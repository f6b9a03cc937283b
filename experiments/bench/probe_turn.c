/*
 * A probe turned round again and again, for BPF_PROG_TEST_RUN, which repeats a program on the same packet: after one turn it is an
 * answer. So the probe is written anew each time; the other program does that alone.
 */
#include "../../sopa_ryu/agent/bpf/sopa_probe.c"

struct restored {
	__u8 bytes[OPTION_BYTES];
	__u16 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct restored);
} restored SEC(".maps");

static __always_inline int restore(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct restored *its = bpf_map_lookup_elem(&restored, &zero);

	if (!its)
		return -1;
	if (skb->len == PLAIN_BYTES)
		return bpf_skb_store_bytes(skb, 0, its->bytes, PLAIN_BYTES, 0);
	return bpf_skb_store_bytes(skb, 0, its->bytes, OPTION_BYTES, 0);
}

SEC("tc")
int restore_only(struct __sk_buff *skb)
{
	return restore(skb) ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

SEC("tc")
int restore_and_turn(struct __sk_buff *skb)
{
	return restore(skb) ? TC_ACT_SHOT : handle(skb);
}
