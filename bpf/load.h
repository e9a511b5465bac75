/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What is known of how a backend is: connections in flight, round trip times.
 *
 * A connection counts from when a socket or a flow is given a backend until it is
 * closed, fails, or goes elsewhere. What nobody sees, such as an entry that an LRU
 * map gave up, the agent corrects by counting anew.
 */
#pragma once

#include "addr.h"
#include "maps.h"

static __always_inline void backend_opened(struct backend *b)
{
	__sync_fetch_and_add(&b->in_flight, 1);
}

/* What was opened before an ID was given out anew must not make it negative. */
static __always_inline void one_less(struct backend *b)
{
	if (__sync_fetch_and_add(&b->in_flight, -1) <= 0)
		__sync_fetch_and_add(&b->in_flight, 1);
}

/* The backend may be gone by now, and its ID another's. */
static __always_inline void backend_closed(__u32 id, const struct addr_port *to)
{
	struct backend *b = bpf_map_lookup_elem(&backends, &id);

	if (b && id && same_addr_port(&b->to, to))
		one_less(b);
}

/* Connections in flight; for a moment the number itself may be below zero. */
static __always_inline __u32 in_flight(const struct backend *b)
{
	__s32 n = *(volatile const __s32 *)&b->in_flight;

	return n < 0 ? 0 : n;
}

#define SRTT_SHIFT 3			/* a sample counts for an eighth */
#define SRTT_HALF_LIFE_NS 4294967296ULL /* about 4.3 seconds */

/*
 * Takes a sample of the round trip time, of a connection to a backend. More than
 * before is believed at once, less only by and by: so a backend that gets slow is
 * noticed with its first answer (peak EWMA).
 */
static __always_inline void note_srtt(struct backend *b, __u32 sample_us)
{
	__u32 old = b->srtt_us;

	if (!sample_us)
		return;
	if (sample_us < old)
		sample_us = old - ((old - sample_us) >> SRTT_SHIFT);
	b->srtt_us = sample_us;
	b->srtt_at_ns = bpf_ktime_get_coarse_ns();
}

/*
 * The round trip time, which fades while nobody measures it: who was slow once is
 * asked again. 0 if unknown. Whoever asks makes sure that it is measured.
 */
static __always_inline __u32 faded_srtt_us(struct backend *b, __u64 now)
{
	__u64 halves;

	if (!b->srtt_at_ns)
		b->srtt_at_ns = now;
	if ((__s64)(now - b->srtt_at_ns) <= 0)
		return b->srtt_us;
	halves = (now - b->srtt_at_ns) / SRTT_HALF_LIFE_NS;
	return halves > 31 ? 0 : b->srtt_us >> halves;
}
