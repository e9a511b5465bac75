/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * How is a backend? What is in flight to it, and does it take connections?
 *
 * A connection is in flight from when a socket or a flow is given a backend until
 * it is closed, fails, or goes elsewhere. What no program sees, such as an entry that an
 * LRU map gave up, the agent corrects by counting anew.
 *
 * Passive health: what becomes of connections tells how a backend is, long before
 * the API server learns it. A client whose connections it does not take so many
 * times in a row avoids it. It is ejected for all clients where several say so and none
 * had a connection within the last second: one client alone, which may lie, ejects it
 * for no other. An ejected backend gets one connection as a retry after a second, and
 * after twice that each time; the first that it takes makes it one like all others.
 *
 * Whether it is ejected is a state of the backend; whether clients avoid it then is a
 * matter of the frontend.
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

/*
 * A connection counts, once. CPUs share the line of the Service; a count for each of them would
 * take 1 KiB a Service port where there are 128. What can be forged writes neither that nor
 * the line of the backend: the SYN of a stranger counts nothing, see tc/confirm.h.
 */
static __always_inline void count_connection(__u32 service, struct backend *b)
{
	struct service *s = bpf_map_lookup_elem(&services, &service);

	if (s && service)
		__sync_fetch_and_add(&s->connections, 1);
	__sync_fetch_and_add(&b->connections, 1);
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

#define RETRY_DOUBLINGS 5 /* at most 34 seconds between retries */

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
static __always_inline bool is_ejected_for(const struct backend *b,
					   __u32 client)
{
	if (!eject_after) /* it may have been another before an upgrade */
		return false;
	return b->ejection > EJECTION_ONE ||
	       (b->ejection == EJECTION_ONE && b->failed_by == client);
}

/* How long after a retry the next one comes: a second at least. */
static __always_inline __u32 retry_interval(__u32 retries)
{
	return (HEALTH_TIMES_PER_S + 1)
	       << (retries < RETRY_DOUBLINGS ? retries : RETRY_DOUBLINGS);
}

/* One or all clients avoid the backend from now on, but for a retry at a time. */
static __always_inline void eject(struct backend *b, enum ejection how,
				  __u64 now_ns, __u32 retry)
{
	b->retries = 0;
	b->ejected_since_s = now_ns / NSEC_PER_SEC;
	b->next_retry = retry;
	b->ejection = how; /* last: a CPU that reads it reads the retry, too */
	count(backend_ejected);
}

static __always_inline void count_up(__u8 *n)
{
	if (*n < 0xff)
		(*n)++;
}

/* Do several clients say so, and has no other just had a connection? */
static __always_inline bool is_outvoted(const struct backend *b, __u32 now)
{
	__u32 votes = eject_after < LEAST_VOTES ? LEAST_VOTES : eject_after;

	return b->votes >= votes &&
	       elapsed_ticks(now, b->taken_at) >= HEALTH_TIMES_PER_S;
}

/*
 * The client that failed last is a new one: what the one before avoids ends. False if
 * another CPU says just now that there is one: a client has one vote, on however many
 * CPUs it fails at once. The numbers may miss what two CPUs note at once, and then
 * eject a backend one failure later.
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
	if (b->ejection == EJECTION_ONE)
		b->ejection = EJECTION_NONE;
	return true;
}

/*
 * The backend did not take a connection of a client. One that does not speak for
 * others is noted only while no client has failed that does. It must take any
 * pointer.
 */
GLOBAL_FUNC int note_failure_at(struct backend *b, __u32 client,
				bool for_others, __u64 now_ns)
{
	__u32 now = health_time(now_ns), retry = now + retry_interval(0);

	count(backend_failed);
	if (!b || !eject_after)
		return 0;
	if (b->failures < 0xffff)
		b->failures++;
	if (!for_others && b->votes)
		return 0;
	if (!vote(b, client, for_others))
		return 0;
	count_up(&b->own_failures);
	if (b->ejection >= EJECTION_ALL) {
		if (b->retries)
			b->ejection = EJECTION_CONFIRMED;
	} else if (is_outvoted(b, now)) {
		eject(b, EJECTION_ALL, now_ns, retry);
	} else if (!b->ejection && b->own_failures >= eject_after) {
		eject(b, EJECTION_ONE, now_ns, retry);
	}
	return 0;
}

static __always_inline void note_failure(struct backend *b, __u32 client,
					 bool for_others)
{
	note_failure_at(b, client, for_others, bpf_ktime_get_coarse_ns());
}

/* Probes say that the backend is not well: it gets its next retry at a time. */
static __always_inline void note_failed_probe(struct backend *b, __u64 now_ns,
					      __u64 retry_ns)
{
	__u32 retry = health_time(retry_ns) + 1;

	if (b->ejection == EJECTION_CONFIRMED) {
		b->next_retry = retry;
		return;
	}
	b->failures = eject_after;
	b->failed_by = 0;
	eject(b, EJECTION_CONFIRMED, now_ns, retry);
}

/* Is anything held against the backend? */
static __always_inline bool has_failed(const struct backend *b)
{
	return b->failures || b->ejection;
}

/*
 * All that was held against the backend is forgotten. It begins slowly if it was gone
 * for sure: otherwise a client that lies could keep it slow.
 */
static __always_inline void clear_failures(struct backend *b, __u64 now_ns)
{
	if (b->ejection)
		count(backend_recovered);
	if (b->ejection == EJECTION_CONFIRMED)
		b->slow_start_from = health_time(now_ns);
	b->ejection = EJECTION_NONE;
	b->failures = 0;
	b->failed_by = 0;
	b->own_failures = b->votes = b->retries = 0;
	b->ejected_since_s = 0;
}

/* Is it news that the backend took a connection? Mostly it has just taken one. */
static __always_inline bool is_news(const struct backend *b)
{
	return has_failed(b) ||
	       b->taken_at != health_time(bpf_ktime_get_coarse_ns());
}

/* The backend took a connection. */
static __always_inline void note_success_at(struct backend *b, __u64 now_ns)
{
	b->taken_at = health_time(now_ns);
	if (has_failed(b))
		clear_failures(b, now_ns);
}

static __always_inline void note_success(struct backend *b)
{
	note_success_at(b, bpf_ktime_get_coarse_ns());
}

/* The same of a client that speaks for itself alone. */
static __always_inline void note_own_success(struct backend *b, __u32 client,
					     __u64 now_ns)
{
	if (!b->votes && b->ejection <= EJECTION_ONE && b->failed_by == client)
		clear_failures(b, now_ns);
}

/*
 * Is this connection the retry of an ejected backend? Only one is at its time. The
 * client that failed last leaves it to others for as long again.
 */
static __always_inline bool take_retry(struct backend *b, __u32 client)
{
	__u32 now = health_time(bpf_ktime_get_coarse_ns()), at = b->next_retry;
	__u32 due = at;

	if (b->ejection > EJECTION_ONE && b->failed_by == client)
		due += retry_interval(b->retries);
	if (elapsed_ticks(due, now)) /* it is yet to come */
		return false;
	if (__sync_val_compare_and_swap(&b->next_retry, at,
					now + retry_interval(b->retries + 1)) !=
	    at)
		return false;
	count_up(&b->retries);
	count(backend_retry);
	return true;
}

/* A backend that has just begun gets one connection in so many, at least. */
#define SLOW_START_LEAST 16

/*
 * Does a backend that has begun a moment ago, or come back, have to leave this
 * connection to others? The younger it is the more often, for so many seconds.
 */
static __always_inline bool slow_start_skips(struct backend *b, __u32 seconds)
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

/* Units of 2^30 ns, about a second, of which a backend has eight bits. */
#define SCARCE_TIME_SHIFT 30
#define SCARCE_TIMES 4

static __always_inline __u8 scarce_time(__u64 now_ns)
{
	__u8 time = now_ns >> SCARCE_TIME_SHIFT;

	return time ?: 1;
}

/* Source ports of this node towards a backend run short. */
static __always_inline void note_scarce(struct backend *b, __u64 now_ns)
{
	b->scarce_at = scarce_time(now_ns);
}

/* Did they a moment ago? What is longer ago is forgotten, before its time comes round. */
static __always_inline bool is_scarce(struct backend *b, __u64 now_ns)
{
	__u8 at = b->scarce_at;

	if (!at)
		return false;
	if (elapsed_bits(scarce_time(now_ns), at, 8) < SCARCE_TIMES)
		return true;
	b->scarce_at = 0;
	return false;
}

/*
 * Returns 1 if there is such a backend, and failures eject, else 0. What an
 * earlier configuration has ejected is cleared also where they do not.
 */
static __always_inline int note_probe_result(const struct probe_result *r)
{
	__u32 id = r->backend_id;
	struct backend *b = bpf_map_lookup_elem(&backends, &id);
	__u64 now = r->now_ns;

	if (!b || !id || !same_addr_port(&b->to, &r->backend))
		return 0;
	if (r->failed && !eject_after)
		return 0;
	if (r->failed)
		note_failed_probe(b, now, now + r->no_retry_ns);
	else
		clear_failures(b, now);
	return 1;
}
