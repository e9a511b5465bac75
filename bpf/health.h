/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Passive health: what becomes of connections tells how a backend is, long before
 * the API server learns it. A backend that does not take so many connections in a
 * row is a suspect. It gets one connection on trial after a second, and after twice
 * that each time; the first that it takes makes it one like all others.
 *
 * What a suspect is, is known of the backend; who avoids it is the frontend's.
 */
#pragma once

#include "config.h"
#include "load.h"
#include "select.h"
#include "verdict.h"

#define NSEC_PER_SEC 1000000000ULL
#define TRIAL_DOUBLINGS 5 /* at most 32 seconds between trials */

static __always_inline bool is_suspect(const struct backend *b)
{
	return suspect_after && b->failures >= suspect_after;
}

/* How long after a trial the next one comes. */
static __always_inline __u64 trial_interval_ns(__u32 trials)
{
	return NSEC_PER_SEC
	       << (trials < TRIAL_DOUBLINGS ? trials : TRIAL_DOUBLINGS);
}

/* The backend did not take a connection. */
static __always_inline void note_failure(struct backend *b)
{
	__u64 now;

	count(backend_failed);
	if (__sync_fetch_and_add(&b->failures, 1) + 1 != suspect_after)
		return;
	now = bpf_ktime_get_coarse_ns();
	b->trials = 0;
	b->suspect_since_s = now / NSEC_PER_SEC;
	b->next_trial_ns = now + trial_interval_ns(0);
	count(backend_suspected);
}

/* It took one. Mostly there is nothing to note. */
static __always_inline void note_success(struct backend *b)
{
	if (!b->failures)
		return;
	if (is_suspect(b)) {
		b->slow_start_from_ns = bpf_ktime_get_coarse_ns();
		b->suspect_since_s = 0;
		count(backend_recovered);
	}
	b->failures = 0;
}

/* Does a suspect get this connection on trial? Only one gets it at its time. */
static __always_inline bool take_trial(struct backend *b)
{
	__u64 now = bpf_ktime_get_coarse_ns(), at = b->next_trial_ns;
	__u64 next;

	if ((__s64)(now - at) < 0)
		return false;
	next = now + trial_interval_ns(b->trials + 1);
	if (__sync_val_compare_and_swap(&b->next_trial_ns, at, next) != at)
		return false;
	b->trials++;
	count(backend_trial);
	return true;
}

/* At the least one connection in so many goes to who has just begun. */
#define SLOW_START_LEAST 16

/*
 * Does a backend that has begun a moment ago, or come back, have to leave this
 * connection to others? The younger it is the more often, for so many seconds.
 */
static __always_inline bool is_held_back(struct backend *b, __u32 seconds)
{
	__u64 now = bpf_ktime_get_coarse_ns(), age, span;

	if (!b->slow_start_from_ns)
		b->slow_start_from_ns = now;
	age = now - b->slow_start_from_ns;
	span = seconds * NSEC_PER_SEC;
	if (age >= span)
		return false;
	if (age < span / SLOW_START_LEAST)
		age = span / SLOW_START_LEAST;
	return random_u32() > (age >> 16 << 32) / (span >> 16);
}
