/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * How often a CPU answers with a reset: as often as the kernel sends ICMP errors by
 * default. Who floods a port that nobody serves gets few answers, and so does
 * whose address the flood gives as its own.
 */
#pragma once

#include "affinity.h"

#define RESETS_PER_SECOND 1000

struct reset_budget {
	__u64 since_ns; /* coarse clock */
	__u64 spent;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct reset_budget);
} reset_budgets SEC(".maps");

static __always_inline bool may_reset(void)
{
	__u64 now = bpf_ktime_get_coarse_ns();
	struct reset_budget *b;
	__u32 zero = 0;

	b = bpf_map_lookup_elem(&reset_budgets, &zero);
	if (!b)
		return false;
	if (now - b->since_ns >= NSEC_PER_SEC) {
		b->since_ns = now;
		b->spent = 0;
	}
	return b->spent++ < RESETS_PER_SECOND;
}
