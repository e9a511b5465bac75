/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Choices without branches: a mask has all bits set, or none. For numbers below 2^63.
 */
#pragma once

#include "../abi/types.h"

static __always_inline __u64 mask_if_less(__u64 a, __u64 b)
{
	__u64 less = a - b;

	asm volatile(
		""
		: "+r"(less)); /* else the compiler compares, and branches */
	less = (__s64)less >> 63;
	asm volatile("" : "+r"(less));
	return less;
}

static __always_inline __u64 choose(__u64 mask, __u64 a, __u64 b)
{
	return (a & mask) | (b & ~mask);
}

static __always_inline __u64 greater(__u64 a, __u64 b)
{
	return choose(mask_if_less(a, b), b, a);
}

static __always_inline __u64 lesser(__u64 a, __u64 b)
{
	return choose(mask_if_less(a, b), a, b);
}
