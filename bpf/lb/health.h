/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * How is a backend? What is in flight to it, and does it take connections?
 *
 * A connection is in flight from when a socket or a flow is given a backend until
 * it is closed, fails, or goes elsewhere. What nobody sees, such as an entry that an
 * LRU map gave up, the agent corrects by counting anew.
 *
 * Passive health: what becomes of connections tells how a backend is, long before
 * the API server learns it. A client whose connections it does not take so many
 * times in a row avoids it. All clients do where several say so and nobody had a
 * connection within the last second: one client alone, which may lie, makes a
 * backend a suspect for nobody else. A suspect gets one connection on trial after a
 * second, and after twice that each time; the first that it takes makes it one like
 * all others.
 *
 * What a suspect is, is known of the backend; who avoids it is the frontend's.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../lib/addr.h"
#include "../lib/time.h"
#include "../lib/verdict.h"
#include "table.h"

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

/* Returns the backend, or NULL: it may be gone by now, and its ID another's. */
static __always_inline struct backend *
backend_closed(__u32 id, const struct addr_port *to)
{
	struct backend *b = bpf_map_lookup_elem(&backends, &id);

	if (!b || !id || !same_addr_port(&b->to, to))
		return NULL;
	one_less(b);
	return b;
}

/* Connections in flight; for a moment the number itself may be below zero. */
static __always_inline __u32 in_flight(const struct backend *b)
{
	__s32 n = *(volatile const __s32 *)&b->in_flight;

	return n < 0 ? 0 : n;
}

#define TRIAL_DOUBLINGS 5 /* at most 34 seconds between trials */

/* Times of health go by 2^26 ns, about 67 ms: 32 bits of them last nine years. */
#define HEALTH_TIME_SHIFT 26
#define HEALTH_TIMES_PER_S 15

/* Votes by which all avoid a backend are two at least: one client does not decide. */
#define LEAST_VOTES 2

static __always_inline __u32 health_time(__u64 now_ns)
{
	return now_ns >> HEALTH_TIME_SHIFT;
}

/* Does a client avoid the backend? Of one that is well nothing else is asked. */
static __always_inline bool is_suspect_to(const struct backend *b, __u32 client)
{
	if (!suspect_after) /* it may have been another before an upgrade */
		return false;
	return b->suspicion > SUSPICION_ONE ||
	       (b->suspicion == SUSPICION_ONE && b->failed_by == client);
}

/* How long after a trial the next one comes: a second at least. */
static __always_inline __u32 trial_interval(__u32 trials)
{
	return (HEALTH_TIMES_PER_S + 1)
	       << (trials < TRIAL_DOUBLINGS ? trials : TRIAL_DOUBLINGS);
}

/* One or all clients avoid the backend from now on, but for a trial at a time. */
static __always_inline void suspect(struct backend *b, enum suspicion how,
				    __u64 now_ns, __u32 trial)
{
	b->trials = 0;
	b->suspect_since_s = now_ns / NSEC_PER_SEC;
	b->next_trial = trial;
	b->suspicion = how; /* last: a suspect has a trial */
	count(backend_suspected);
}

static __always_inline void count_up(__u8 *n)
{
	if (*n < 0xff)
		(*n)++;
}

/* Do several clients say so, and has no other just had a connection? */
static __always_inline bool is_outvoted(const struct backend *b, __u32 now)
{
	__u32 votes = suspect_after < LEAST_VOTES ? LEAST_VOTES : suspect_after;

	return b->votes >= votes &&
	       elapsed_ticks(now, b->taken_at) >= HEALTH_TIMES_PER_S;
}

/*
 * The client that failed last is a new one: what the one before avoids ends. False if
 * another CPU says just now that there is one: a client has one vote, on however many
 * CPUs it fails at once. The numbers may miss what two CPUs note at once, which makes
 * a suspect one failure later.
 */
static __always_inline bool vote(struct backend *b, __u32 client,
				 bool for_others)
{
	__u32 last = b->failed_by;

	if (last == client)
		return true;
	if (__sync_val_compare_and_swap(&b->failed_by, last, client) != last)
		return false;
	b->own_failures = 0;
	if (for_others)
		count_up(&b->votes);
	if (b->suspicion == SUSPICION_ONE)
		b->suspicion = SUSPICION_NONE;
	return true;
}

/*
 * The backend did not take a connection of a client. One that does not speak for
 * others is noted only while no client has failed that does. It must take any
 * pointer.
 */
STEP int note_failure(struct backend *b, __u32 client, bool for_others)
{
	__u64 now_ns = bpf_ktime_get_coarse_ns();
	__u32 now = health_time(now_ns), trial = now + trial_interval(0);

	count(backend_failed);
	if (!b || !suspect_after)
		return 0;
	if (b->failures < 0xffff)
		b->failures++;
	if (!for_others && b->votes)
		return 0;
	if (!vote(b, client, for_others))
		return 0;
	count_up(&b->own_failures);
	if (b->suspicion >= SUSPICION_ALL) {
		if (b->trials)
			b->suspicion = SUSPICION_CONFIRMED;
	} else if (is_outvoted(b, now)) {
		suspect(b, SUSPICION_ALL, now_ns, trial);
	} else if (!b->suspicion && b->own_failures >= suspect_after) {
		suspect(b, SUSPICION_ONE, now_ns, trial);
	}
	return 0;
}

/* Probes say that the backend is not well: it gets its next trial at a time. */
static __always_inline void note_failed_probe(struct backend *b, __u64 now_ns,
					      __u64 trial_ns)
{
	__u32 trial = health_time(trial_ns) + 1;

	if (b->suspicion == SUSPICION_CONFIRMED) {
		b->next_trial = trial;
		return;
	}
	b->failures = suspect_after;
	b->failed_by = 0;
	suspect(b, SUSPICION_CONFIRMED, now_ns, trial);
}

/*
 * The backend took a connection, and all that was held against it is forgotten. It
 * begins slowly if it was gone for sure: otherwise who lies could keep it slow.
 */
static __always_inline void note_success_at(struct backend *b, __u64 now_ns)
{
	if (b->suspicion)
		count(backend_recovered);
	if (b->suspicion == SUSPICION_CONFIRMED)
		b->slow_start_from = health_time(now_ns);
	b->suspicion = SUSPICION_NONE;
	b->failures = 0;
	b->failed_by = 0;
	b->own_failures = b->votes = b->trials = 0;
	b->suspect_since_s = 0;
}

/* Is it news that the backend took a connection? Mostly it has just taken one. */
static __always_inline bool is_news(const struct backend *b)
{
	return b->failures || b->suspicion ||
	       b->taken_at != health_time(bpf_ktime_get_coarse_ns());
}

/* The backend took a connection. */
static __always_inline void note_success(struct backend *b)
{
	__u64 now_ns = bpf_ktime_get_coarse_ns();

	b->taken_at = health_time(now_ns);
	if (b->failures || b->suspicion)
		note_success_at(b, now_ns);
}

/* The same of a client that speaks for itself alone. */
static __always_inline void note_own_success(struct backend *b, __u32 client)
{
	if (!b->votes && b->suspicion <= SUSPICION_ONE &&
	    b->failed_by == client)
		note_success_at(b, bpf_ktime_get_coarse_ns());
}

/*
 * Does a suspect get this connection on trial? Only one gets it at its time. The
 * client that failed last leaves it to others for as long again.
 */
static __always_inline bool take_trial(struct backend *b, __u32 client)
{
	__u32 now = health_time(bpf_ktime_get_coarse_ns()), at = b->next_trial;
	__u32 due = at;

	if (b->suspicion > SUSPICION_ONE && b->failed_by == client)
		due += trial_interval(b->trials);
	if (elapsed_ticks(due, now)) /* it is yet to come */
		return false;
	if (__sync_val_compare_and_swap(&b->next_trial, at,
					now + trial_interval(b->trials + 1)) !=
	    at)
		return false;
	count_up(&b->trials);
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
	__u32 now = health_time(bpf_ktime_get_coarse_ns());
	__u32 span = seconds * HEALTH_TIMES_PER_S, age;

	if (!b->slow_start_from)
		b->slow_start_from = now;
	age = elapsed_ticks(now, b->slow_start_from);
	if (age >= span)
		return false;
	if (age < span / SLOW_START_LEAST)
		age = span / SLOW_START_LEAST;
	return random_u32() > ((__u64)age << 32) / span;
}

/*
 * Returns 1 if there is such a backend, and failures make suspects, else 0. What an
 * earlier configuration has suspected is cleared also where they do not.
 */
static __always_inline int note_probe_result(const struct probe_result *r)
{
	__u32 id = r->backend_id;
	struct backend *b = bpf_map_lookup_elem(&backends, &id);
	__u64 now = r->now_ns;

	if (!b || !id || !same_addr_port(&b->to, &r->backend))
		return 0;
	if (r->failed && !suspect_after)
		return 0;
	if (r->failed)
		note_failed_probe(b, now, now + r->no_trial_ns);
	else
		note_success_at(b, now);
	return 1;
}
