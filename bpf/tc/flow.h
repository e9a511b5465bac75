/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Flows: their two directions, and when they end.
 *
 * A flow is half-open until both sides have shown that they are there: after the
 * handshake of TCP, and with datagrams once a query comes after a reply, two seconds
 * after the first. A TCP connection is half-open again once both sides have closed it, the
 * second one by numbers that are hard to guess (tc/end.h). Both directions are half-open together, and
 * make room for others then, see flow/room.h.
 *
 * Packets of one flow, of both directions, come to several CPUs at once: each change
 * of a flag says whether it was this CPU that made it, so that what follows from it
 * happens once.
 *
 * A flow is in flight from when both sides have confirmed it until both have closed it, one has
 * reset it, its backend has left, or it makes room for another. Of those that end
 * unseen the agent learns when it counts anew.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../flow/room.h"
#include "../flow/state.h"
#include "../flow/table.h"
#include "../lb/health.h"
#include "../lib/addr.h"
#include "../lib/time.h"
#include "packet.h"

/* The backend of a flow, given its original direction. */
static __always_inline struct backend *flow_backend(const struct flow *original)
{
	__u32 id = original->known;

	return id ? bpf_map_lookup_elem(&backends, &id) : NULL;
}

/* The flow that a packet has begun just now. */
static __always_inline struct new_flow *begun_flow(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&flow_scratch, &zero);
}

/* Where a new flow is put together: stacks are short. */
static __always_inline struct new_flow *empty_flow(void)
{
	struct new_flow *flow = begun_flow();

	if (flow)
		__builtin_memset(flow, 0, sizeof(*flow));
	return flow;
}

/* A flow to a backend is in flight from now on, if it was not. */
static __always_inline void flow_opened(const struct found *f)
{
	struct backend *b;

	if ((f->seen & (FLOW_TO_BACKEND | FLOW_COUNTED)) != FLOW_TO_BACKEND)
		return;
	b = flow_backend(f->flow);
	if (b && set_flow_flag(f, FLOW_COUNTED))
		backend_opened(b);
}

/* A flow ends, whichever of its directions is given: only one of them is counted. */
static __always_inline void flow_closed(const struct found *f)
{
	if (clear_flow_flag(f, FLOW_COUNTED))
		flow_uncounted(f->flow, FLOW_COUNTED);
}

/* For how long no packet of a flow was noted, in either direction. */
static __always_inline __u32 both_idle(__u32 reply, __u32 original,
				       __u64 now_ns)
{
	__u32 a = flow_idle(reply, now_ns), b = flow_idle(original, now_ns);

	return a < b ? a : b;
}

/*
 * Has a flow ended, by its silence? A connection that both sides have confirmed goes on however
 * long it is silent; datagrams and half-open flows do not.
 */
static __always_inline bool has_ended(__u32 reply, __u32 original, __u64 now_ns)
{
	__u32 both = reply | original;

	if (!(reply & FLOW_SEEN))
		both |= FLOW_HALF_OPEN;
	return both & (FLOW_HALF_OPEN | FLOW_DATAGRAMS) &&
	       both_idle(reply, original, now_ns) >
		       flow_times(both & FLOW_HALF_OPEN ? IDLE_ENDED_S :
							  udp_flow_timeout_s);
}

/*
 * Idle seconds after which the port of a flow that both sides have closed may be another's, where
 * ports are scarce. After these a handshake makes room before all ports are tried, too.
 */
#define IDLE_CLOSED_S 1

/*
 * May a flow have to go where ports are scarce? It may not the moment it closes. A handshake may at
 * any age: where a flood of SYNs holds all ports, only another handshake makes room for a client.
 */
static __always_inline bool may_have_to_go(__u32 reply, __u32 original,
					   __u64 now_ns)
{
	if (!((reply | original) & FLOW_HALF_OPEN))
		return false;
	return !((reply | original) & FLOW_CLOSING) ||
	       both_idle(reply, original, now_ns) > flow_times(IDLE_CLOSED_S);
}
