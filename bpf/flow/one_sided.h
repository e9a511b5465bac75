/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Connections that seem to have ended, as one side has closed or reset them. They may be
 * half-closed, or somebody has forged that packet: so they make room only for TCP, and
 * only where nothing else does.
 */
#pragma once

#include "../abi/maps.h"
#include "../lib/verdict.h"
#include "state.h"
#include "table.h"

/* Idle seconds after which a connection that is one-sided goes for want of room. */
#define IDLE_ONE_SIDED_S 5

/* Does a connection seem to have ended, by the states of both directions? */
static __always_inline bool seems_ended(__u32 one, __u32 other, __u64 now_ns)
{
	const __u32 limit = flow_times(IDLE_ONE_SIDED_S);

	return (one | other) & FLOW_CLOSING && flow_idle(one, now_ns) > limit &&
	       flow_idle(other, now_ns) > limit;
}

/*
 * Has a direction of TCP lost the other one, or was either closed or reset without proof
 * that both sides are done?
 */
static __always_inline bool is_one_sided(const struct flow *flow, __u32 state,
					 __u64 now_ns)
{
	struct found other;

	if (!is_used(state) || state & (FLOW_DATAGRAMS | FLOW_HALF_OPEN) ||
	    flow_idle(state, now_ns) <= flow_times(IDLE_ONE_SIDED_S))
		return false;
	if (!find_other((const struct tuple *)flow, flow, &other))
		return true;
	return seems_ended(state, other.seen, now_ns);
}

/* Frees a way of a set if it is of a flow that is one-sided. */
GLOBAL_FUNC int free_if_one_sided(__u32 index, __u32 way, __u64 now_ns)
{
	struct flow_set *s = bpf_map_lookup_elem(&flow_table, &index);
	struct found f;

	if (!s || way >= FLOW_WAYS)
		return false;
	f.seen = *(volatile __u32 *)&s->state[way];
	if (!is_one_sided(&s->way[way], f.seen, now_ns))
		return false;
	f.flow = &s->way[way];
	f.state = &s->state[way];
	f.tag = &s->tag[way];
	if (!remove_flow(&f))
		return false;
	count(flow_evicted);
	return true;
}

/*
 * Frees a way for TCP where no other makes room; false if none can. Of a connection that
 * was reset nobody knows whether its end was forged, so it stays for two hours, and costs
 * nothing before there is no room.
 */
static __always_inline bool free_one_sided(__u32 first, __u32 second,
					   __u64 now_ns)
{
	bool freed = false;

#pragma nounroll
	for (__u32 w = 0; w < 2 * FLOW_WAYS && !freed; w++)
		freed = free_if_one_sided(w < FLOW_WAYS ? first : second,
					  w % FLOW_WAYS, now_ns);
	return freed;
}
