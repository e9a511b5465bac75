/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Does a flow still hold for a packet, or does another begin? */
#pragma once

#include "brief.h"
#include "ports.h"
#include "select.h"

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
 * Does the Service still have the backend of a flow to it? Some time its ID is
 * another backend's, and flows stay: the address has to be the same, too.
 */
static __always_inline bool has_backend(struct flow *flow)
{
	struct frontend *f = bpf_map_lookup_elem(&frontends, &flow->frontend);
	__u32 id = flow->backend_id;
	struct backend *b;

	if (!f || f->service != flow->service ||
	    !still_names(f->known, id, &flow->slot))
		return false;
	b = bpf_map_lookup_elem(&backends, &id);
	return b && b->to.port == flow->to.dst_port &&
	       same_addr(&b->to.addr, &flow->to.dst);
}

/*
 * A flow that is broken is so both ways: both sides are told. Not inlined: the
 * stack of its caller has no room to spare.
 */
static __noinline enum verdict break_flow(const struct packet *pkt,
					  struct flow *flow)
{
	struct flow *other;
	struct tuple key;

	other_key(&key, &flow->to, pkt->tuple.hook);
	other = bpf_map_lookup_elem(&conntrack, &key);
	flow->flags |= FLOW_BROKEN;
	if (other)
		other->flags |= FLOW_BROKEN;
	count(flow_broken);
	return VERDICT_RESET;
}

/*
 * Have both sides of a connection closed it? Then the client's port has come
 * again with a SYN, and the choice is a new one: the backend before may drain.
 * One that only the client has reset is not over: anybody could have. Not
 * inlined, for the same reason.
 */
static __noinline bool is_over(const struct packet *pkt,
			       const struct flow *flow)
{
	struct flow *other;
	struct tuple key;

	if (!(flow->flags & FLOW_CLOSING))
		return false;
	other_key(&key, &flow->to, pkt->tuple.hook);
	other = bpf_map_lookup_elem(&conntrack, &key);
	return other && other->flags & FLOW_CLOSING;
}

/*
 * Does a flow still hold for a packet? It needs a backend that the Service still
 * has, a connection must not be over, and datagrams must not have paused for too
 * long. Otherwise what may begin anew does (VERDICT_CONTINUE), and a connection
 * ends (VERDICT_RESET).
 */
static __always_inline enum verdict still_flows(const struct packet *pkt,
						struct flow *flow, __u64 now)
{
	bool begins = may_begin(pkt);

	if (flow->flags & FLOW_BROKEN && !begins)
		return VERDICT_RESET;
	if (flow->flags & FLOW_REFUSED && begins)
		return VERDICT_CONTINUE; /* there may be an endpoint by now */
	if (!(flow->flags & FLOW_TO_BACKEND) || pkt->fragment ||
	    (pkt->l4_proto != IPPROTO_TCP && !begins))
		return VERDICT_PASS;
	if (begins && pkt->l4_proto == IPPROTO_TCP && is_over(pkt, flow))
		return VERDICT_CONTINUE;
	if (pkt->l4_proto != IPPROTO_TCP &&
	    now - flow->last_seen_ns > udp_flow_timeout_s * NSEC_PER_SEC)
		return VERDICT_CONTINUE;
	if (!(flow->flags & FLOW_BROKEN) && has_backend(flow))
		return VERDICT_PASS;
	return begins ? VERDICT_CONTINUE : break_flow(pkt, flow);
}
