/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A flow is half-open until both sides have shown that they are there: after the
 * handshake of TCP, and with datagrams after a query, a reply and a query. A TCP
 * connection that both sides have closed is half-open again.
 *
 * Half-open flows share a ring. Taking a slot of it evicts the flow that had the
 * slot, if that is still half-open. So there are never more half-open flows than
 * slots, however many SYNs come from forged addresses, and confirmed flows keep the
 * rest of the table. To tell the classes apart costs later packets nothing, as a
 * second table would.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../lib/time.h"
#include "../lib/verdict.h"
#include "flow.h"

/* Of a half-open flow that has no slot of the ring yet. */
#define NO_RING_SLOT 0xffffffff

/* Takes the next slot of the ring for the flow with a key, and returns it. */
GLOBAL_FUNC __u32 take_ring_slot(const struct tuple *key)
{
	__u32 zero = 0, slot = 0, *next;
	struct tuple *at, old;
	struct flow *flow;

	next = bpf_map_lookup_elem(&next_half_open, &zero);
	if (!next || !key)
		return 0;
	slot = __sync_fetch_and_add(next, 1) & half_open_mask;
	at = bpf_map_lookup_elem(&half_open_flows, &slot);
	if (!at)
		return 0;
	old = *at;
	*at = *key;
	flow = bpf_map_lookup_elem(&conntrack, &old);
	if (flow && flow->flags & FLOW_HALF_OPEN && flow->ring_slot == slot) {
		forget_flow(&old, flow);
		count(flow_expired);
	}
	return slot;
}

/* Idle seconds after which the port of a flow that both sides have closed may be
 * another's, where ports are scarce. */
#define IDLE_CLOSED_S 1

/* May a flow have to go where ports are scarce? It may not the moment it closes. */
static __always_inline bool
may_have_to_go(const struct flow *reply, const struct flow *original, __u64 now)
{
	if (!((reply->flags | original->flags) & FLOW_HALF_OPEN))
		return false;
	return !((reply->flags | original->flags) & FLOW_CLOSING) ||
	       elapsed(now, last_seen(reply, original)) >
		       IDLE_CLOSED_S * NSEC_PER_SEC;
}
