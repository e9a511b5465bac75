/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the packets of flows were is counted beside their ways: a load and a store of a line that
 * is the CPU's own, since the packets of one direction come to one CPU. The agent takes what
 * has come to the sums of Service and backend. So no packet writes a line that CPUs share.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "table.h"

/*
 * Do packets of a flow count as traffic of a Service? Each does once: towards the backend where it
 * gets that, and back where it gets the address of the frontend.
 */
static __always_inline bool is_to_count(__u32 state)
{
	return state & (FLOW_TO_BACKEND | FLOW_REPLY);
}

static __always_inline struct flow_traffic *traffic_of(__u32 place)
{
	__u32 index = place >> 3;

	return bpf_map_lookup_elem(&flow_traffic, &index);
}

/* Counts a packet of the flow at a place, with so many bytes of payload. */
static __always_inline void count_packet_in(struct flow_traffic *t, __u32 place,
					    __u32 bytes)
{
	if (t)
		t->counted[place & 7] += 1ULL << PACKET_COUNT_SHIFT | bytes;
}

/* The same where nothing is at hand, or of no flow. */
static __always_inline void count_packet(__u32 place, __u32 bytes)
{
	if (count_traffic)
		count_packet_in(traffic_of(place), place, bytes);
}

/* What flows had a way before is not of the next one. */
static __always_inline void begin_traffic(__u32 place)
{
	struct flow_traffic *t;

	if (!count_traffic)
		return;
	t = traffic_of(place);
	if (t)
		t->taken[place & 7] = t->counted[place & 7];
}

/* A flow moves to another way, with what nobody has taken yet. */
static __always_inline void move_traffic(__u32 from, __u32 to)
{
	struct flow_traffic *was, *is;

	if (!count_traffic)
		return;
	was = traffic_of(from);
	is = traffic_of(to);
	if (was && is)
		is->taken[to & 7] = is->counted[to & 7] + was->taken[from & 7] -
				    was->counted[from & 7];
}
