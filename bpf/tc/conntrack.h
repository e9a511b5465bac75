/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Flows of packets that do not come from a socket of this node. An entry says
 * what a packet with a tuple becomes at a hook: a plain exchange of tuples, the
 * same for both directions and both families. For client C, frontend F, backend B:
 *
 *	in   C → F  becomes  C → B     out  B → C  becomes  F → C
 *
 * and if B is on another node, so that its answers must come back here, the
 * packet gets the address of the device D where it leaves:
 *
 *	out  C → B  becomes  D → B     in   B → D  becomes  B → C
 *
 * The kernel in between, with its own conntrack, only ever sees C and B.
 *
 * Most packets find their entry and read it: one look-up, and no store. What is
 * to be asked or noted is so at the ends of a connection, once a second, and after
 * any Service has lost a backend.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../lb/table.h"
#include "../lib/addr.h"
#include "../lib/time.h"
#include "../lib/verdict.h"
#include "first_reply.h"
#include "flow.h"
#include "half_open.h"
#include "packet.h"

/*
 * Does a packet go where another went, whatever has become of the flow? What has no
 * ports of its own follows the first of its datagram, and what begins an SCTP
 * association is never fragmented.
 */
static __always_inline bool only_follows(const struct packet *pkt)
{
	return pkt->fragment ||
	       (pkt->l4_proto == IPPROTO_SCTP && pkt->more_fragments);
}

/* Does the packet begin a connection? Datagrams may always begin one. */
static __always_inline bool may_begin(const struct packet *pkt)
{
	return !only_follows(pkt) &&
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
	    !still_names(f->members, id, &flow->slot))
		return false;
	b = bpf_map_lookup_elem(&backends, &id);
	return b && b->to.port == flow->to.dst_port &&
	       same_addr(&b->to.addr, &flow->to.dst);
}

/*
 * A flow is broken in both directions: both sides get a reset, and it is not in
 * flight any more. Not inlined: the stack of its caller has no room to spare.
 */
static __noinline enum verdict break_flow(const struct packet *pkt,
					  struct flow *flow)
{
	struct flow *other;
	struct tuple key;

	other_key(&key, &flow->to, pkt->tuple.hook);
	other = bpf_map_lookup_elem(&conntrack, &key);
	if (other)
		set_flow_flag(other, FLOW_BROKEN);
	if (set_flow_flag(flow, FLOW_BROKEN)) {
		flow_closed(flow);
		count(flow_broken);
	}
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
 * Is a flow still valid for a packet? It needs a backend that the Service still
 * has, a connection must not be over, and datagrams must not have paused for too
 * long. Otherwise what may begin anew does (VERDICT_CONTINUE), and a connection
 * ends (VERDICT_RESET).
 */
static __always_inline enum verdict check_flow(const struct packet *pkt,
					       struct flow *flow, __u64 now)
{
	bool begins = may_begin(pkt);

	if (flow->flags & FLOW_BROKEN && !begins)
		return VERDICT_RESET;
	if (flow->flags & FLOW_REFUSED && begins)
		return VERDICT_CONTINUE; /* there may be an endpoint by now */
	if (!(flow->flags & FLOW_TO_BACKEND) || only_follows(pkt))
		return VERDICT_PASS;
	if (begins && pkt->l4_proto == IPPROTO_TCP && is_over(pkt, flow))
		return VERDICT_CONTINUE;
	if (pkt->l4_proto != IPPROTO_TCP &&
	    elapsed(now, flow->last_seen_ns) >
		    udp_flow_timeout_s * NSEC_PER_SEC)
		return VERDICT_CONTINUE;
	if (!(flow->flags & FLOW_BROKEN) && has_backend(flow))
		return VERDICT_PASS;
	return begins ? VERDICT_CONTINUE : break_flow(pkt, flow);
}

/*
 * An ACK within this window of the SYN proves that it was received; a blind guess
 * succeeds once in 4,096.
 */
#define HANDSHAKE_WINDOW (1 << 20)

/* Notes what the TCP flags of a packet say of its direction. */
static __always_inline void note_tcp(const struct packet *pkt,
				     struct flow *flow)
{
	if (pkt->tcp_flags & (TCP_FIN | TCP_RST)) {
		set_flow_flag(flow, FLOW_CLOSING);
	} else if (pkt->tcp_flags & TCP_SYN) {
		clear_flow_flags(flow, FLOW_CLOSING);
		flow->next_seq = bpf_ntohl(pkt->tcp_seq) + 1;
	}
}

/* When a backend last left a Service, whichever. */
static __always_inline __u64 last_removal(void)
{
	__u32 zero = 0;
	struct about *a = bpf_map_lookup_elem(&about, &zero);

	return a ? a->removed_ns : 0;
}

/*
 * Is a packet one of many, with nothing to ask or to note? Then its flow was noted
 * within a second, and had its backend, which no Service has lost since.
 */
static __always_inline bool is_one_of_many(const struct packet *pkt,
					   const struct flow *flow, __u64 now)
{
	return !(pkt->tcp_flags & (TCP_SYN | TCP_FIN | TCP_RST)) &&
	       (flow->flags & (FLOW_SEEN | FLOW_HALF_OPEN | FLOW_BROKEN |
			       FLOW_REFUSED)) == FLOW_SEEN &&
	       elapsed(now, flow->last_seen_ns) < NSEC_PER_SEC &&
	       flow->last_seen_ns > last_removal();
}

/*
 * Does a packet prove that its sender has received packets of the other direction?
 * A reset or a FIN proves nothing that would be worth it.
 */
static __always_inline bool confirms(const struct packet *pkt,
				     const struct flow *flow,
				     const struct flow *other)
{
	if (!(other->flags & FLOW_SEEN) ||
	    (flow->flags | other->flags) & FLOW_CLOSING)
		return false;
	if (pkt->l4_proto != IPPROTO_TCP)
		return true;
	return (pkt->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_ACK &&
	       bpf_ntohl(pkt->tcp_ack) - other->next_seq < HANDSHAKE_WINDOW;
}

/*
 * Makes the other direction of a flow again: the map had no room for it, or its backend
 * has left the Service. So the one to the backend is as good as new: its next packet asks.
 */
GLOBAL_FUNC int restore_other(const struct packet *pkt, const struct flow *flow)
{
	struct flow other;
	struct tuple key;

	if (!pkt || !flow)
		return 0;
	other = *flow;
	other_key(&other.to, &pkt->tuple, pkt->tuple.hook);
	other.flags &= FLOW_BYPASS | FLOW_SEEN;
	if (flow->flags & FLOW_TO_BACKEND)
		other.flags |= pkt->pod ? FLOW_REPLY | FLOW_FROM_POD :
					  FLOW_REPLY;
	if (flow->flags & FLOW_REPLY)
		other.flags = (other.flags & ~FLOW_SEEN) | FLOW_TO_BACKEND;
	other_key(&key, &flow->to, pkt->tuple.hook);
	bpf_map_update_elem(&conntrack, &key, &other, BPF_NOEXIST);
	count(flow_restored);
	return 0;
}

/*
 * Notes a packet of a flow: that it lives, how far it has got, whether it is
 * half-open. The look-up of the other direction keeps that from being the least
 * recently used, however few packets it has. The time is from before the backend was
 * checked: a removal since then is the later one.
 */
GLOBAL_FUNC int note_packet(const struct packet *pkt, struct flow *flow,
			    __u64 now)
{
	struct flow *other;
	struct tuple key;
	__u64 silent;
	bool first;

	if (!pkt || !flow)
		return 0;
	note_tcp(pkt, flow);
	silent = elapsed(now, flow->last_seen_ns);
	flow->last_seen_ns = now;
	first = set_flow_flag(flow, FLOW_SEEN) && flow->flags & FLOW_REPLY;
	other_key(&key, &flow->to, pkt->tuple.hook);
	other = bpf_map_lookup_elem(&conntrack, &key);
	note_load(pkt, flow, other);
	if (first)
		note_first_reply(pkt, flow);
	else if (other)
		note_repeat(pkt, flow, other, silent);
	if (!other) {
		if (!(flow->flags & FLOW_HALF_OPEN))
			restore_other(pkt, flow);
	} else if (flow->flags & FLOW_HALF_OPEN) {
		if (confirms(pkt, flow, other) &&
		    clear_flow_flags(flow, FLOW_HALF_OPEN))
			count(flow_established);
	} else if (pkt->tcp_flags & TCP_FIN && other->flags & FLOW_CLOSING &&
		   !(other->flags & FLOW_HALF_OPEN)) {
		key = pkt->tuple;
		flow->ring_slot = take_ring_slot(&key);
		set_flow_flag(flow, FLOW_HALF_OPEN);
	}
	return 0;
}

/*
 * A packet of a flow, whose ports are known, becomes what that says (VERDICT_REWRITE);
 * what has none goes on to the next step.
 */
GLOBAL_FUNC int follow_flow(struct packet *pkt)
{
	struct flow *flow;
	struct tuple key;
	enum verdict v;
	__u64 now, seen;

	if (!pkt)
		return VERDICT_PASS;
	key = pkt->tuple; /* Linux 6.1 takes no key from a caller's memory */
	flow = bpf_map_lookup_elem(&conntrack, &key);
	if (!flow)
		return only_follows(pkt) ? VERDICT_PASS : VERDICT_CONTINUE;
	if (is_over_header(pkt))
		return refuse(DROP_FRAGMENT, 0);
	now = coarse_now();
	if (!is_one_of_many(pkt, flow, now)) {
		seen = flow->last_seen_ns;
		v = check_flow(pkt, flow, now);
		if (v == VERDICT_CONTINUE)
			end_direction(&key, flow, seen);
		if (v != VERDICT_PASS)
			return v;
		if (!only_follows(pkt)) /* it has not asked for the backend */
			note_packet(pkt, flow, now);
	}
	pkt->to = flow->to; /* the entry may come to another flow meanwhile */
	count(flow_packet);
	return VERDICT_REWRITE;
}
