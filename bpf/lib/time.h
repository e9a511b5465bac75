/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Time. The coarse clock goes by ticks of the kernel; all times that maps keep are
 * its.
 *
 * CPUs do not see a tick at the same moment, and the kernel raises the number of
 * ticks before the clock: what one CPU has noted as the present may lie in the
 * future of another. So times are never subtracted but by the functions here.
 */
#pragma once

#include "../abi/types.h"
#include "mask.h"

#define NSEC_PER_SEC 1000000000ULL

/* How long ago a time is, in the unit of both; 0 if it is yet to come. */
static __always_inline __u64 elapsed(__u64 now, __u64 then)
{
	__s64 passed = now - then;

	return passed > 0 ? passed : 0;
}

/* The same of numbers of ticks, which begin again at 0 after 2^32. */
static __always_inline __u32 elapsed_ticks(__u32 now, __u32 then)
{
	__s32 passed = now - then;

	return passed > 0 ? passed : 0;
}

/* The number that there was so many ticks ago. */
static __always_inline __u32 ticks_before(__u32 now, __u32 ticks)
{
	return now - ticks;
}

/* So many ticks one CPU may be ahead of another, by far. */
#define TICKS_AHEAD 32

/* The same of numbers with fewer bits, which are old most of the time. */
static __always_inline __u32 elapsed_bits(__u32 now, __u32 then, __u32 bits)
{
	__u32 most = (1U << bits) - 1, passed = (now - then) & most;

	return passed & mask_if_less(passed, most - TICKS_AHEAD + 1);
}

/* Is a time in a byte at most so many units old? It may be one unit ahead. */
static __always_inline bool is_recent(__u8 now, __u8 then, __u32 most)
{
	__u8 passed = now - then + 1;

	return passed <= most + 1;
}

static volatile __u64 clock_tick;
static volatile __u64 clock_ns;

/*
 * What bpf_ktime_get_coarse_ns returns, or did a tick ago, without a call for most
 * packets: the time of the last tick is kept for all CPUs, and the number of ticks
 * is read in place. A CPU that reads half of what another writes is behind, too.
 */
static __always_inline __u64 coarse_now(void)
{
	__u64 tick = bpf_jiffies64(), now;

	if (tick == clock_tick)
		return clock_ns;
	now = bpf_ktime_get_coarse_ns();
	clock_ns = now;
	clock_tick = tick;
	return now;
}
