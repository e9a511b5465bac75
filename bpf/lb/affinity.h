/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Session affinity ClientIP: a client that comes again before the timeout gets
 * the backend it had, as long as the Service has it. Every new connection
 * starts the timeout anew.
 */
#pragma once

#include "../abi/maps.h"
#include "../lib/time.h"
#include "table.h"

/* What is remembered of a client: its backend, and that it was used just now. */
static __always_inline __u64 affinity_word(__u32 backend_id)
{
	return (__u64)backend_id << 32 |
	       (__u32)(bpf_ktime_get_coarse_ns() >> AFFINITY_TIME_SHIFT);
}

/* The backend that the client had, if that is valid; *had is what is remembered. */
static __always_inline bool recall_backend(const struct frontend *f,
					   const struct affinity_key *key,
					   struct table t, struct choice *c,
					   __u64 *had)
{
	struct affinity *a = bpf_map_lookup_elem(&affinities, key);
	__u64 limit = f->affinity_timeout_s * NSEC_PER_SEC, word;

	*had = a ? a->had : 0;
	if (!*had || elapsed_ticks(affinity_word(0), *had) > limit >>
			     AFFINITY_TIME_SHIFT)
		return false;
	c->slot = a->slot;
	if (!still_names(t, *had >> 32, &c->slot) || !find_backend(c))
		return false;
	word = affinity_word(c->id);
	if (__sync_val_compare_and_swap(&a->had, *had, word) == *had)
		*had = word;
	a->slot = c->slot;
	return true;
}

/*
 * Remembers the backend of a choice in place of what was remembered. If another CPU has
 * chosen for the same client meanwhile, this choice becomes that one: a client has one
 * backend. Not inlined, for the stack of the caller.
 */
static __noinline int remember_backend(const struct affinity_key *key,
				       __u64 had, __u64 table, struct choice *c)
{
	struct affinity mine = { .had = affinity_word(c->id), .slot = c->slot };
	struct table t = { .offset = table, .size = table >> 32 };
	struct choice first;
	struct affinity *a;

	if (!had && !bpf_map_update_elem(&affinities, key, &mine, BPF_NOEXIST))
		return 0;
	a = bpf_map_lookup_elem(&affinities, key);
	if (!a) /* it made room for others */
		return 0;
	if (__sync_val_compare_and_swap(&a->had, had, mine.had) == had) {
		a->slot = c->slot;
		return 0;
	}
	first.slot = a->slot;
	if (still_names(t, a->had >> 32, &first.slot) && find_backend(&first))
		*c = first;
	return 0;
}
