/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Floods: what had to make room of late. Backends are chosen, and found again, by that. */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../lib/time.h"
#include "table.h"

/* When a handshake that was still young last had to make room, as a flow has times. */
static volatile __u32 flood_time;

#define FLOOD_YOUNG_S 3
#define FLOOD_LASTS_S 10

/* When a flow of datagrams that was confirmed last had to make room, as a flow has times. */
static volatile __u32 displaced_time;

/* Notes a flood of SYNs, or one of datagrams, by the state of a flow that makes room. */
static __always_inline void note_flood(__u32 state, __u64 now_ns)
{
	__u32 now = flow_time(now_ns);

	if ((state & (FLOW_HALF_OPEN | FLOW_DATAGRAMS)) == FLOW_DATAGRAMS &&
	    displaced_time != now)
		displaced_time = now;
	if ((state & (FLOW_HALF_OPEN | FLOW_CLOSING | FLOW_DATAGRAMS)) ==
		    FLOW_HALF_OPEN &&
	    flow_idle(state, now_ns) < flow_times(FLOOD_YOUNG_S) &&
	    flood_time != now)
		flood_time = now;
}

/*
 * Do handshakes have to make room while they last? Then a backend should be found again
 * for an ACK whose flow is gone.
 */
static __always_inline bool is_flooded(__u64 now_ns)
{
	return flood_time && elapsed_ticks(flow_time(now_ns), flood_time) <
				     flow_times(FLOOD_LASTS_S);
}

/* May a flow of datagrams that goes on have lost a direction? */
static __always_inline bool are_displaced(__u64 now_ns)
{
	return displaced_time &&
	       elapsed_ticks(flow_time(now_ns), displaced_time) <=
		       flow_times(udp_flow_timeout_s);
}
