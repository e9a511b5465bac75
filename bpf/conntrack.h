/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Flows of packets that do not come from a socket of this node. An entry says
 * what a packet with a tuple becomes at a hook: a plain exchange of tuples, the
 * same for both ways and both families. For client C, frontend F, backend B:
 *
 *	in   C → F  becomes  C → B     out  B → C  becomes  F → C
 *
 * and if B is on another node, so that its answers must come back here, the
 * packet gets the address of the device D where it leaves:
 *
 *	out  C → B  becomes  D → B     in   B → D  becomes  B → C
 *
 * The kernel in between, with its own conntrack, only ever sees C and B.
 */
#pragma once

#include "affinity.h"
#include "nat.h"
#include "ports.h"

#define SNAT_TRIES 16

/* Idle seconds after which the port of a flow may be another's. */
#define IDLE_CLOSED_S 1		/* closed by both, where ports are scarce */
#define IDLE_ENDED_S 60		/* closed, or never answered */
#define IDLE_ESTABLISHED_S 7440 /* RFC 5382: two hours and four minutes */

/*
 * Does the packet begin a connection? Datagrams may always begin one, but what
 * has no ports of its own goes where the first of its datagram went, and what
 * begins an SCTP association is never fragmented.
 */
static __always_inline bool may_begin(const struct packet *pkt)
{
	return !pkt->fragment &&
	       !(pkt->l4_proto == IPPROTO_SCTP && pkt->more_fragments) &&
	       (pkt->l4_proto != IPPROTO_TCP ||
		(pkt->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN);
}

/*
 * Does a flow still hold? An established connection does until it ends by
 * itself; what may begin anew needs a backend that the Service still has, and
 * datagrams must not have paused for too long.
 */
static __always_inline bool still_flows(const struct packet *pkt,
					struct flow *flow, __u64 now)
{
	struct frontend *f;

	if (!(flow->flags & (FLOW_TO_BACKEND | FLOW_REFUSED)) ||
	    !may_begin(pkt))
		return true;
	if (flow->flags & FLOW_REFUSED)
		return false; /* there may be an endpoint by now */
	if (pkt->l4_proto != IPPROTO_TCP &&
	    now - flow->last_seen_ns > udp_flow_timeout_s * NSEC_PER_SEC)
		return false;
	f = bpf_map_lookup_elem(&frontends, &flow->frontend);
	return f && f->service == flow->service &&
	       still_names(f->known, flow->backend_id, &flow->slot);
}

/* The flow that a packet belongs to, or NULL. */
static __always_inline struct flow *find_flow(const struct packet *pkt)
{
	/* Linux 6.1 takes no key from the memory of a caller. */
	struct tuple key = pkt->tuple;
	struct flow *flow = bpf_map_lookup_elem(&conntrack, &key);
	__u64 now = bpf_ktime_get_coarse_ns();

	if (!flow || !still_flows(pkt, flow, now))
		return NULL;
	flow->last_seen_ns = now;
	flow->flags |= FLOW_SEEN;
	if (pkt->tcp_flags & (TCP_FIN | TCP_RST))
		flow->flags |= FLOW_CLOSING;
	else if (pkt->tcp_flags & TCP_SYN)
		flow->flags &= ~FLOW_CLOSING;
	return flow;
}

/*
 * Has a flow ended, of which both ways are given? A connection that is open may
 * be silent for long; datagrams, what is closed and what nobody answered may not.
 * Where ports are scarce, what both sides have closed makes room at once.
 */
static __always_inline bool has_ended(const struct flow *back,
				      const struct flow *way, __u64 now,
				      bool scarce)
{
	__u64 last = back->last_seen_ns, limit = IDLE_ESTABLISHED_S;

	if ((__s64)(way->last_seen_ns - last) > 0)
		last = way->last_seen_ns;
	if (scarce && back->flags & way->flags & FLOW_CLOSING)
		limit = IDLE_CLOSED_S;
	else if ((back->flags | way->flags) & FLOW_CLOSING ||
		 !(back->flags & FLOW_SEEN))
		limit = IDLE_ENDED_S;
	else if (back->to.protocol != IPPROTO_TCP)
		limit = udp_flow_timeout_s;
	return (__s64)(now - last) > (__s64)(limit * NSEC_PER_SEC);
}

/* The key of the way back of a packet that becomes *to. */
static __always_inline struct tuple back_key(const struct tuple *to,
					     enum hook hook)
{
	struct tuple key = reversed(to);

	key.hook = hook;
	return key;
}

/* One of the ports that the node's own sockets do not choose. */
static __always_inline __be16 snat_port(__u32 number)
{
	return bpf_htons(snat_port_low + (number & snat_port_mask));
}

/* The search for a source port by which a way back is free. */
struct port_search {
	struct tuple *to;
	const struct flow *back;
	__u32 random;
	__u8 hook; /* enum hook, of the way back */
	bool scarce;
	bool found;
};

/*
 * Adds a way back, unless its key belongs to another flow that goes on. One
 * that has ended loses both its ways.
 */
static __always_inline bool add_back(const struct port_search *s)
{
	struct tuple key = back_key(s->to, s->hook);
	struct flow *old, *way;

	if (!bpf_map_update_elem(&conntrack, &key, s->back, BPF_NOEXIST))
		return true;
	old = bpf_map_lookup_elem(&conntrack, &key);
	if (!old)
		return false;
	if (same_tuple(&old->to, &s->back->to)) {
		old->flags &= ~FLOW_CLOSING;
		return true;
	}
	key = back_key(&old->to, s->hook == HOOK_IN ? HOOK_OUT : HOOK_IN);
	way = bpf_map_lookup_elem(&conntrack, &key);
	if (way && !has_ended(old, way, s->back->last_seen_ns, s->scarce))
		return false;
	bpf_map_delete_elem(&conntrack, &key);
	key = back_key(s->to, s->hook);
	return !bpf_map_update_elem(&conntrack, &key, s->back, BPF_ANY);
}

/* One try; 1 ends the search. A callback, so that it is verified once. */
static long try_port(__u32 i, void *data)
{
	struct port_search *s = data;

	if (i)
		s->to->src_port = snat_port(s->random + i * 0x9e37);
	s->scarce = i >= SNAT_TRIES / 2;
	s->found = add_back(s);
	return s->found;
}

/*
 * Adds the way back of a flow whose way there becomes *to. Where another flow
 * has that way back already, this one gets another source port.
 */
static __always_inline bool add_way_back(struct tuple *to, enum hook back_hook,
					 const struct flow *back)
{
	struct port_search s = {
		.to = to,
		.back = back,
		.random = bpf_get_prandom_u32(),
		.hook = back_hook,
	};

	bpf_loop(SNAT_TRIES, try_port, &s, 0);
	return s.found;
}
