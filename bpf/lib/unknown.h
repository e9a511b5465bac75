/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Where a loop begins to count. The verifier of Linux 7.3 follows what a callback of bpf_loop counts
 * from a constant on, step by step, and ends at a million instructions. What it does not know it
 * looks at once.
 */
#pragma once

#include "../abi/types.h"

/* 0, which the verifier does not know, given a number that it does not know either. */
static __always_inline __u32 unknown_zero(__u32 unknown)
{
	__u32 same = unknown;

	asm volatile("" : "+r"(same));
	return unknown - same;
}
