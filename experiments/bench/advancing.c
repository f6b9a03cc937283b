/*
 * The labelling program on segments that follow each other: BPF_PROG_TEST_RUN repeats one frame, which would be one segment that is sent
 * again and again. After each run the sequence number is that of the next segment; `advancing_empty` does that alone.
 */
#define sopa_egress as_attached
#include "../../sopa_ryu/agent/bpf/sopa_egress.c"
#undef sopa_egress

static __always_inline void advance(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data;
	struct iphdr *ip = data + ETH_HLEN;
	struct tcphdr *tcp = (void *)(ip + 1);

	if ((void *)(tcp + 1) <= (void *)(long)skb->data_end)
		tcp->seq = bpf_htonl(bpf_ntohl(tcp->seq) + skb->len - ETH_HLEN - sizeof(*ip) - sizeof(*tcp));
}

SEC("tc")
int sopa_egress(struct __sk_buff *skb)
{
	__u32 device = 0;

	if (!is_answer(skb))
		count(label(skb, &device));
	advance(skb);
	return TC_ACT_UNSPEC;
}

SEC("tc")
int advancing_empty(struct __sk_buff *skb)
{
	advance(skb);
	return TC_ACT_UNSPEC;
}
