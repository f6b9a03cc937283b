/*
 * Room for the option of Multi-Channel Scatter (docs/mcs.md) in the headers that Linux' TCP writes. One program for all interfaces of an
 * agent's process: Linux attaches 64 to a cgroup, and a socket's network namespace tells whose it is. Sockets of all other namespaces, those
 * of containers, are of one interface at most.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "flowhash.h"
#include "mcs_option.h"

#define INET6 10
#define MD5_KIND 19 /* RFC 2385 */
#define AO_KIND 29 /* RFC 5925 */
#define ENOSPC 28
#define OTHERS 0 /* no namespace has this cookie */

/* By the cookie of a network namespace: the map mcs_hosts of the programs at its interface. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, __u32);
	__array(values, struct mcs_host_map);
} mcs_namespaces SEC(".maps");

/* By the same: the map mcs_settings. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, __u32);
	__array(values, struct mcs_settings_map);
} mcs_settings_of SEC(".maps");

/* Returns half of the remote's IPv6 address; the kernel lets it be read in words only, which the compiler would join. */
static __always_inline __u64 half(struct bpf_sock_ops *its, int word)
{
	volatile __u32 *words = its->remote_ip6;

	return (__u64)bpf_ntohl(words[word]) << 32 | bpf_ntohl(words[word + 1]);
}

/* Returns the remote host's IPv4 address, that of the same host with IPv6. */
static __always_inline __u32 remote_of(struct bpf_sock_ops *its, __u64 namespace)
{
	struct mcs_settings *set = (void *)0;
	__u32 only = 0;
	void *settings;

	if (its->family == INET6) {
		settings = bpf_map_lookup_elem(&mcs_settings_of, &namespace);
		if (settings)
			set = bpf_map_lookup_elem(settings, &only);
		if (set && set->prefix && (half(its, 0) & ~0xffffULL) == set->prefix)
			return inside_address(half(its, 0), half(its, 2), set->network);
	}
	/* An IPv6 socket may have an IPv4 connection, and its address; other connections of IPv6 have one of the loopback's there. */
	return bpf_ntohl(its->remote_ip4);
}

/* Returns what may be done with the remote host, by the socket's namespace, or as one of the others; 0: nothing. */
static __always_inline __u32 use_of_remote(struct bpf_sock_ops *its)
{
	__u64 namespace = bpf_get_netns_cookie(its);
	void *hosts = bpf_map_lookup_elem(&mcs_namespaces, &namespace);
	__u32 remote, *use;

	if (!hosts) {
		namespace = OTHERS;
		hosts = bpf_map_lookup_elem(&mcs_namespaces, &namespace);
	}
	if (!hosts)
		return 0;
	remote = remote_of(its, namespace);
	use = bpf_map_lookup_elem(hosts, &remote);
	return use ? *use : 0;
}

static __always_inline int has_option(struct bpf_sock_ops *its, __u8 kind)
{
	__u8 option[4] = { kind };
	long found = bpf_load_hdr_opt(its, option, sizeof(option), 0);

	return found > 0 || found == -ENOSPC; /* longer than what is asked for */
}

/* The last packet of the handshake that came is signed, and so are all that follow: nothing may change in their headers. */
static __always_inline int is_signed(struct bpf_sock_ops *its)
{
	return has_option(its, MD5_KIND) || has_option(its, AO_KIND);
}

SEC("sockops")
int sopa_mcs_ops(struct bpf_sock_ops *its)
{
	struct mco placeholder = { MCO_KIND, MCO_BYTES };

	switch (its->op) {
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		if (use_of_remote(its) && !is_signed(its))
			bpf_sock_ops_cb_flags_set(its, its->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
		break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		if (use_of_remote(its) == SCATTERS)
			bpf_reserve_hdr_opt(its, sizeof(placeholder), 0);
		break;
	case BPF_SOCK_OPS_WRITE_HDR_OPT_CB:
		bpf_store_hdr_opt(its, &placeholder, sizeof(placeholder), 0);
		break;
	}
	return 1;
}

char LICENSE[] SEC("license") = "Apache-2.0"; /* no helper in use asks for the GPL */
