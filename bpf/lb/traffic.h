/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Traffic of a Service port and of a backend: what is known once a connection is over, or
 * is gathered before, is added to the line of each. CPUs share both, as they do the number
 * of connections: so many small sums for each CPU would take megabytes a node for Services
 * that have no traffic. What can be forged writes neither, but where a backend fails.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"

/* The Service port with an ID, or NULL: it may be unknown. */
static __always_inline struct service *service_named(__u32 id)
{
	return id ? bpf_map_lookup_elem(&services, &id) : NULL;
}

static __always_inline void add_sum(__u64 *to, __u64 n)
{
	if (n)
		__sync_fetch_and_add(to, n);
}

/* A backend has failed a connection of a Service port. Either may be NULL. */
static __always_inline void count_failure(struct service *s, struct backend *b,
					  enum failure how)
{
	if (s)
		add_sum(&s->traffic.failures[how], 1);
	if (b)
		add_sum(&b->traffic.failures[how], 1);
}

/*
 * Leaves of a payload what has not been counted yet. Of two who count at once each leaves
 * its own part.
 */
static __always_inline void leave_new(struct payload *counted,
				      struct payload *p)
{
	for (int d = 0; d < DIRECTIONS; d++) {
		__u64 was = *(volatile __u64 *)&counted->bytes[d];
		__u64 all = p->bytes[d];

		p->bytes[d] = 0;
		if (all > was && __sync_val_compare_and_swap(&counted->bytes[d],
							     was, all) == was)
			p->bytes[d] = all - was;
	}
}

/* Payload has gone each way. */
static __always_inline void add_payload(struct service *s, struct backend *b,
					const struct payload *p)
{
	for (int d = 0; d < DIRECTIONS; d++) {
		if (s)
			add_sum(&s->traffic.bytes[d], p->bytes[d]);
		add_sum(&b->traffic.bytes[d], p->bytes[d]);
	}
}

/* Which bucket has a time: bounds are powers of two of a second. */
static __always_inline __u32 bucket_of(__u64 us)
{
	__u64 v = us * 4295 >> 12 >> CONNECT_TIME_SHIFT; /* 2^20 / 10^6 */
	__u32 bucket = 0;

#pragma nounroll
	for (; v && bucket < CONNECT_TIMES - 1; bucket++)
		v >>= 1;
	return bucket;
}
