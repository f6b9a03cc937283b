/* Bitmaps of channels, and vectors of small numbers, one a channel. */
#ifndef SOPA_MCS_VECTORS_H
#define SOPA_MCS_VECTORS_H

#include <linux/types.h>
#include <bpf/bpf_helpers.h>

#include "mcs.h"

static __always_inline __u32 all_channels(__u32 channels)
{
	return (1U << channels) - 1;
}

static __always_inline __u32 all_fresh(__u32 channels)
{
	return (1ULL << 2 * channels) - 1;
}

/*
 * Vectors of 2 and 4 bits a channel, and bitmaps of channels: all of them at a time, as the verifier would follow each branch of a loop
 * over them. A bitmap is spread to the lowest bits of a vector's elements, and gathered from them.
 */
#define EVERY_2 0x55555555U
#define EVERY_4 0x1111111111111111ULL

static __always_inline __u32 spread2(__u32 bitmap)
{
	bitmap = (bitmap | bitmap << 8) & 0x00ff00ff;
	bitmap = (bitmap | bitmap << 4) & 0x0f0f0f0f;
	bitmap = (bitmap | bitmap << 2) & 0x33333333;
	return (bitmap | bitmap << 1) & EVERY_2;
}

static __always_inline __u32 gathered2(__u32 vector)
{
	vector &= EVERY_2;
	vector = (vector | vector >> 1) & 0x33333333;
	vector = (vector | vector >> 2) & 0x0f0f0f0f;
	vector = (vector | vector >> 4) & 0x00ff00ff;
	return (vector | vector >> 8) & 0xffff;
}

static __always_inline __u64 spread4(__u64 bitmap)
{
	bitmap = (bitmap | bitmap << 24) & 0x000000ff000000ffULL;
	bitmap = (bitmap | bitmap << 12) & 0x000f000f000f000fULL;
	bitmap = (bitmap | bitmap << 6) & 0x0303030303030303ULL;
	return (bitmap | bitmap << 3) & EVERY_4;
}

/* Returns the bitmap of the elements that are not 0. */
static __always_inline __u32 gathered4(__u64 vector)
{
	vector |= vector >> 2;
	vector |= vector >> 1;
	vector &= EVERY_4;
	vector = (vector | vector >> 3) & 0x0303030303030303ULL;
	vector = (vector | vector >> 6) & 0x000f000f000f000fULL;
	vector = (vector | vector >> 12) & 0x000000ff000000ffULL;
	return (vector | vector >> 24) & 0xffff;
}

/* Returns the bitmap as seen from channel `from` on: that one first. */
static __always_inline __u32 rotated(__u32 bitmap, __u32 from, __u32 channels)
{
	return (bitmap >> from | bitmap << (channels - from)) & all_channels(channels);
}

static __always_inline __u32 lowest(__u32 bitmap)
{
	return bitmap & -bitmap;
}

/* Returns the first channel of a bitmap that is rotated to begin with channel `from`. */
static __always_inline __u32 rank(__u32 bitmap, __u32 from, __u32 channels)
{
	__u32 c = from, bit = lowest(bitmap);

	c += (bit & 0xff00 ? 8 : 0) + (bit & 0xf0f0 ? 4 : 0) + (bit & 0xcccc ? 2 : 0) + (bit & 0xaaaa ? 1 : 0);
	return (c < channels ? c : c - channels) & (MAX_CHANNELS - 1);
}

#endif
