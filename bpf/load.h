/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Connections in flight of backends.
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
