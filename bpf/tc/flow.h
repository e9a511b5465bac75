/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Flows: their two directions, their flags, and when they end.
 *
 * Packets of one flow, of both directions, come to several CPUs at once: each change
 * of a flag is atomic, and says whether it was this CPU that made it, so that what
 * follows from it happens once. What is so already costs a load.
 *
 * A flow is in flight from when it begins until both sides have closed it, one has
 * reset it, its backend has left, or it makes room for another. Of those that end
 * unseen the agent learns when it counts anew.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../lb/health.h"
#include "../lib/addr.h"
#include "../lib/time.h"
#include "packet.h"

/* Sets a flag; false if it was set before. */
static __always_inline bool set_flow_flag(struct flow *flow,
					  enum flow_flag flag)
{
	return !(flow->flags & flag) &&
	       !(__sync_fetch_and_or(&flow->flags, flag) & flag);
}

/* Clears flags; false if none of them was set. */
static __always_inline bool clear_flow_flags(struct flow *flow,
					     enum flow_flag flags)
{
	return flow->flags & flags &&
	       __sync_fetch_and_and(&flow->flags, ~flags) & flags;
}

static __always_inline enum hook other_hook(__u8 hook)
{
	return hook == HOOK_IN ? HOOK_OUT : HOOK_IN;
}

/* Writes the key of the other direction of a flow that is seen at a hook. */
static __always_inline void other_key(struct tuple *key, const struct tuple *to,
				      __u8 hook)
{
	key->src = to->dst;
	key->dst = to->src;
	key->src_port = to->dst_port;
	key->dst_port = to->src_port;
	key->protocol = to->protocol;
	key->hook = other_hook(hook);
	key->pad[0] = key->pad[1] = 0;
}

static __always_inline struct backend *flow_backend(const struct flow *flow)
{
	__u32 id = flow->backend_id;

	return id ? bpf_map_lookup_elem(&backends, &id) : NULL;
}

/* A flow to a backend begins, or begins again. */
static __always_inline void flow_opened(struct flow *flow)
{
	__u32 id = flow->backend_id;
	struct backend *b;

	if ((flow->flags & (FLOW_TO_BACKEND | FLOW_COUNTED)) != FLOW_TO_BACKEND)
		return;
	b = bpf_map_lookup_elem(&backends, &id);
	if (b && id && set_flow_flag(flow, FLOW_COUNTED))
		backend_opened(b);
}

/* A flow ends, whichever direction is given: only the original one is counted. */
static __always_inline void flow_closed(struct flow *flow)
{
	struct backend *b;
	__u32 id;

	if (!flow || !clear_flow_flags(flow, FLOW_COUNTED))
		return;
	id = flow->backend_id;
	b = bpf_map_lookup_elem(&backends, &id);
	if (b && same_addr(&b->to.addr, &flow->to.dst) &&
	    b->to.port == flow->to.dst_port)
		one_less(b);
}

/* What a packet of TCP says of that; the other direction may be NULL. */
static __always_inline void note_load(const struct packet *pkt,
				      struct flow *flow, struct flow *other)
{
	if (pkt->tcp_flags & TCP_RST || (pkt->tcp_flags & TCP_FIN && other &&
					 other->flags & FLOW_CLOSING)) {
		flow_closed(flow);
		flow_closed(other);
	} else if (pkt->tcp_flags & TCP_SYN) {
		flow_opened(flow);
	}
}

/* Deletes both directions of a flow. */
static __always_inline void forget_flow(struct tuple *key, struct flow *flow)
{
	struct tuple other;

	other_key(&other, &flow->to, key->hook);
	flow_closed(flow);
	flow_closed(bpf_map_lookup_elem(&conntrack, &other));
	bpf_map_delete_elem(&conntrack, &other);
	bpf_map_delete_elem(&conntrack, key);
}

/*
 * Deletes a direction of a flow that is valid no more, as last seen at a time: its
 * packet begins another. Two CPUs may find that out at once; the later one must not take
 * the new flow, which has the same key, for the old one. In between the old one is
 * marked by time 0, and a packet that is so fast as to meet it comes too soon.
 */
static __always_inline void end_direction(struct tuple *key, struct flow *flow,
					  __u64 seen_ns)
{
	if (!seen_ns || __sync_val_compare_and_swap(&flow->last_seen_ns,
						    seen_ns, 0) != seen_ns)
		return;
	flow_closed(flow);
	bpf_map_delete_elem(&conntrack, key);
}

/* Idle seconds after which the port of a flow may be another's. */
#define IDLE_ENDED_S 60		/* closed, or never confirmed */
#define IDLE_ESTABLISHED_S 7440 /* RFC 5382: two hours and four minutes */

/* When a packet of a flow was last noted, in either direction. */
static __always_inline __u64 last_seen(const struct flow *reply,
				       const struct flow *original)
{
	if (elapsed(original->last_seen_ns, reply->last_seen_ns))
		return original->last_seen_ns;
	return reply->last_seen_ns;
}

/*
 * Has a flow ended? A connection that is open may be silent for long; datagrams,
 * closed connections and half-open flows may not.
 */
static __always_inline bool has_ended(const struct flow *reply,
				      const struct flow *original, __u64 now)
{
	__u64 limit = IDLE_ESTABLISHED_S;

	if ((reply->flags | original->flags) &
		    (FLOW_CLOSING | FLOW_HALF_OPEN) ||
	    !(reply->flags & FLOW_SEEN))
		limit = IDLE_ENDED_S;
	else if (reply->to.protocol != IPPROTO_TCP)
		limit = udp_flow_timeout_s;
	return elapsed(now, last_seen(reply, original)) > limit * NSEC_PER_SEC;
}
