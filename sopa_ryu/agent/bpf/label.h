/* The SOPA label, 9e 04 up1 up2 (docs/wire-format.md); flowrules/label.py is its twin in Python. */
#ifndef SOPA_LABEL_H
#define SOPA_LABEL_H

#include <linux/types.h>
#include <bpf/bpf_helpers.h>

#define OPTION_TYPE 0x9e /* RFC 4727: copied, class 0, number 30 */
#define OPTION_LENGTH 4
#define UNUSED_HOP 0xff
/* Before the label in the Ethernet source address that switches match: locally administered. */
#define CARRIER_PREFIX_0 0x02
#define CARRIER_PREFIX_1 0x53

/*
 * A label that names no path, 9e 04 ff base: the edge switch's port gives each packet the candidate path of its own number, which is
 * base and the packet's IPv4 identification together. The base is not ff.
 */
#define BASES 0xff

/* The number of a flow's packet: its path is the candidate of that number, modulo how many there are. */
static __always_inline __u32 packet_number(__u32 base, __u16 id)
{
	return base + id;
}

struct label {
	__u8 type;
	__u8 length;
	__u8 up1;
	__u8 up2;
};

#endif
