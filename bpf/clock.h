/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The coarse clock, without a call for most packets. It goes by ticks, and the
 * number of ticks is read in place: the time of the last tick is kept for all
 * CPUs. One that reads half of what another writes is a tick behind.
 */
#pragma once

static volatile __u64 clock_tick;
static volatile __u64 clock_ns;

/* What bpf_ktime_get_coarse_ns returns, or did a tick ago. */
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
