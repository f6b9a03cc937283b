/*
 * DCTCP (RFC 8257) for kernels without tcp_dctcp: a congestion control of TCP, registered as `sopa_dctcp` for as long as a process of a lab
 * holds it. Both ends of a connection use it. Linux has an ECN-capable connection negotiated for it, as it needs marks.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define NEEDS_ECN 2 /* TCP_CONG_NEEDS_ECN */
#define RECOVERY 3 /* TCP_CA_Recovery */
#define DEMAND_CWR 4 /* TCP_ECN_DEMAND_CWR: acknowledgements carry ECE */
#define ACK_DELAYED 2 /* ICSK_ACK_TIMER */
#define ACK_NOW 8 /* ICSK_ACK_NOW */
#define ALL 1024 /* alpha, where every byte is marked */
#define SHIFT_G 4 /* the weight of a new estimate is 1/16 (RFC 8257, section 4.2) */
#define LEAST_WINDOW 2

enum event { TX_START, CWND_RESTART, COMPLETE_CWR, LOSS, NO_CE, IS_CE };

/* The members that are used. libbpf relocates their offsets to those of the running kernel (CO-RE). */
struct sock {
	__u16 sk_type;
} __attribute__((preserve_access_index));

struct inet_connection_sock {
	struct {
		__u8 pending;
	} icsk_ack;
	__u64 icsk_ca_priv[13];
} __attribute__((preserve_access_index));

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 rcv_nxt;
	__u32 snd_nxt;
	__u32 snd_una;
	__u32 snd_ssthresh;
	__u32 snd_cwnd;
	__u32 delivered;
	__u32 delivered_ce;
	__u8 ecn_flags;
} __attribute__((preserve_access_index));

struct tcp_congestion_ops {
	void (*init)(struct sock *sk);
	__u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, __u32 ack, __u32 acked);
	void (*set_state)(struct sock *sk, __u8 state);
	void (*cwnd_event)(struct sock *sk, enum event event);
	void (*in_ack_event)(struct sock *sk, __u32 flags);
	__u32 (*undo_cwnd)(struct sock *sk);
	__u32 flags;
	char name[16];
};

extern void tcp_reno_cong_avoid(struct sock *sk, __u32 ack, __u32 acked) __ksym;

/* In icsk_ca_priv, 104 bytes. */
struct dctcp {
	__u32 alpha; /* share of marked packets, of ALL */
	__u32 window_end; /* what ends a round trip when it is acknowledged */
	__u32 delivered; /* before this round trip */
	__u32 delivered_ce;
	__u32 window_before; /* the last reduction */
	__u32 received; /* the next byte from the other end, before the newest segment */
	__u32 state; /* of the last state that Linux has told */
	__u32 is_ce; /* the newest segment was marked */
};

/* Linux gives programs of congestion controls the whole socket of TCP. */
static __always_inline struct tcp_sock *tcp_of(struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

static __always_inline struct dctcp *state_of(struct sock *sk)
{
	return (struct dctcp *)((struct inet_connection_sock *)sk)->icsk_ca_priv;
}

static __always_inline void begin_round_trip(const struct tcp_sock *tp, struct dctcp *its)
{
	its->window_end = tp->snd_nxt;
	its->delivered = tp->delivered;
	its->delivered_ce = tp->delivered_ce;
}

static __always_inline __u32 at_least(__u32 window)
{
	return window < LEAST_WINDOW ? LEAST_WINDOW : window;
}

SEC("struct_ops/init")
void BPF_PROG(init, struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct dctcp *its = state_of(sk);

	its->alpha = ALL;
	its->received = tp->rcv_nxt;
	its->is_ce = 0;
	its->window_before = 0;
	its->state = 0;
	begin_round_trip(tp, its);
}

/* A window with marks becomes smaller by half of their share (section 3.3, equation 5). */
SEC("struct_ops/ssthresh")
__u32 BPF_PROG(ssthresh, struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct dctcp *its = state_of(sk);
	__u64 cut = (__u64)tp->snd_cwnd * its->alpha / (2 * ALL);

	its->window_before = tp->snd_cwnd;
	return at_least(tp->snd_cwnd - cut);
}

SEC("struct_ops/cong_avoid")
void BPF_PROG(cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	tcp_reno_cong_avoid(sk, ack, acked);
}

/* A new estimate of the share each round trip (section 3.3, steps 4 to 6). */
SEC("struct_ops/in_ack_event")
void BPF_PROG(in_ack_event, struct sock *sk, __u32 flags)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct dctcp *its = state_of(sk);
	__u32 delivered, marked, less;

	if ((__s32)(tp->snd_una - its->window_end) < 0)
		return;
	delivered = tp->delivered - its->delivered;
	marked = tp->delivered_ce - its->delivered_ce;
	less = its->alpha >> SHIFT_G;
	its->alpha -= less ? less : its->alpha;
	if (marked && delivered) {
		__u64 share = ((__u64)marked << (10 - SHIFT_G)) / delivered;

		its->alpha = its->alpha + share > ALL ? ALL : its->alpha + share;
	}
	begin_round_trip(tp, its);
}

/* A loss halves the window, as of any TCP (section 3.5). */
static __always_inline void halve(struct tcp_sock *tp, struct dctcp *its)
{
	its->window_before = tp->snd_cwnd;
	tp->snd_ssthresh = at_least(tp->snd_cwnd / 2);
}

SEC("struct_ops/set_state")
void BPF_PROG(set_state, struct sock *sk, __u8 state)
{
	struct dctcp *its = state_of(sk);

	if (state == RECOVERY && its->state != RECOVERY)
		halve(tcp_of(sk), its);
	its->state = state;
}

static __always_inline void echo(struct tcp_sock *tp, __u32 is_ce)
{
	tp->ecn_flags = is_ce ? tp->ecn_flags | DEMAND_CWR : tp->ecn_flags & ~DEMAND_CWR;
}

/* Acknowledgements say of each segment whether it was marked. Where that changes, what waits is acknowledged first (section 3.2). */
static __always_inline void received(struct tcp_sock *tp, struct dctcp *its, __u32 is_ce)
{
	if (its->is_ce != is_ce) {
		if (tp->inet_conn.icsk_ack.pending & ACK_DELAYED) {
			echo(tp, its->is_ce);
			bpf_tcp_send_ack(tp, its->received);
		}
		tp->inet_conn.icsk_ack.pending |= ACK_NOW;
	}
	its->received = tp->rcv_nxt;
	its->is_ce = is_ce;
	echo(tp, is_ce);
}

SEC("struct_ops/cwnd_event")
void BPF_PROG(cwnd_event, struct sock *sk, enum event event)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct dctcp *its = state_of(sk);

	if (event == IS_CE || event == NO_CE)
		received(tp, its, event == IS_CE);
	else if (event == LOSS)
		halve(tp, its);
	else if (event == TX_START)
		begin_round_trip(tp, its);
}

SEC("struct_ops/undo_cwnd")
__u32 BPF_PROG(undo_cwnd, struct sock *sk)
{
	__u32 now = tcp_of(sk)->snd_cwnd, before = state_of(sk)->window_before;

	return before > now ? before : now;
}

SEC(".struct_ops")
struct tcp_congestion_ops dctcp = {
	.init = (void *)init,
	.ssthresh = (void *)ssthresh,
	.cong_avoid = (void *)cong_avoid,
	.set_state = (void *)set_state,
	.cwnd_event = (void *)cwnd_event,
	.in_ack_event = (void *)in_ack_event,
	.undo_cwnd = (void *)undo_cwnd,
	.flags = NEEDS_ECN,
	.name = "sopa_dctcp",
};

char LICENSE[] SEC("license") = "Dual MIT/GPL"; /* required by the kernel for congestion controls */
