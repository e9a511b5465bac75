/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Balancing packets: what enters or leaves by a device on which others reach
 * the node.
 */
#pragma once

#include "config.h"
#include "conntrack.h"
#include "frontend.h"

/* The address of the device that has the family of a. */
static __always_inline bool device_addr(const struct __sk_buff *skb,
					const struct ip_addr *a,
					struct ip_addr *own)
{
	__u32 ifindex = skb->ifindex;
	struct device *d = bpf_map_lookup_elem(&devices, &ifindex);

	if (!d)
		return false;
	*own = is_ip4(a) ? d->ip4 : d->ip6;
	return !is_zero(own);
}

/*
 * Adds both ways of a new flow and rewrites its first packet. way->to is what
 * that becomes; its source port may change. A flow of a pod keeps its source,
 * since the way back is by the device of the pod wherever the backend is.
 */
static __always_inline enum verdict begin_flow(struct __sk_buff *skb,
					       struct packet *pkt,
					       struct flow *way,
					       enum hook back_hook)
{
	struct tuple key = pkt->tuple;
	struct flow back = {
		.to = reversed(&key),
		.last_seen_ns = way->last_seen_ns,
		.service = way->service,
	};

	back.to.hook = back_hook;
	if (pkt->pod)
		back.flags = FLOW_FROM_POD;
	if (!add_way_back(&way->to, back_hook, &back))
		return refuse(DROP_SNAT_EXHAUSTED, way->service);
	bpf_map_update_elem(&conntrack, &key, way, BPF_ANY);
	count(flow_made);
	return rewrite(skb, pkt, &way->to) ? VERDICT_CONTINUE : VERDICT_REFUSE;
}

/* The backends of a client: a pod is one on this node. */
static __always_inline struct table table_for(const struct packet *pkt,
					      const struct frontend *f)
{
	return pkt->pod ? f->internal : f->external;
}

/* A packet for a frontend goes to a backend. */
static __always_inline enum verdict
to_backend(struct __sk_buff *skb, struct packet *pkt, const struct frontend *f)
{
	struct flow way = {
		.to = pkt->tuple,
		.last_seen_ns = bpf_ktime_get_coarse_ns(),
		.frontend = f->id,
		.service = f->service,
		.flags = FLOW_TO_BACKEND,
	};
	struct choice choice;
	enum verdict v;

	v = select_from(f, table_for(pkt, f), &pkt->tuple.src, &choice);
	if (v != VERDICT_CONTINUE)
		return v;
	way.to.dst = choice.backend->to.addr;
	way.to.dst_port = choice.backend->to.port;
	way.backend_id = choice.id;
	way.slot = choice.slot;
	/* Both ways of a pod to itself would be the same. */
	if (pkt->pod && same_addr(&way.to.src, &way.to.dst) &&
	    way.to.src_port == way.to.dst_port)
		way.to.src_port = snat_port(bpf_get_prandom_u32());
	return begin_flow(skb, pkt, &way, HOOK_OUT);
}

/*
 * A packet that nobody can take goes to port 0 of the node, on which nobody
 * ever listens: the kernel answers it as it should, and not too often.
 */
static __always_inline enum verdict to_nobody(struct __sk_buff *skb,
					      struct packet *pkt)
{
	struct flow way = {
		.to = pkt->tuple,
		.last_seen_ns = bpf_ktime_get_coarse_ns(),
		.flags = FLOW_REFUSED,
	};

	if (!device_addr(skb, &pkt->tuple.dst, &way.to.dst))
		return VERDICT_REFUSE;
	way.to.dst_port = 0;
	return begin_flow(skb, pkt, &way, HOOK_OUT);
}

/*
 * Is the packet from or to loopback? Nobody else may speak to the services that
 * a node keeps to itself there, whatever its sysctls let in (CVE-2020-8558).
 */
static __always_inline bool is_martian(const struct packet *pkt)
{
	return is_loopback(&pkt->tuple.dst) || is_loopback(&pkt->tuple.src);
}

/* What becomes of a packet that may be for a frontend. */
STEP int balance(struct __sk_buff *skb, struct packet *pkt)
{
	struct addr_port dst = {};
	struct frontend *f;
	enum verdict v;
	__u32 no_local;

	if (!pkt)
		return VERDICT_PASS;
	dst.addr = pkt->tuple.dst;
	dst.port = pkt->tuple.dst_port;
	dst.protocol = pkt->tuple.protocol;
	v = find_frontend(NULL, &dst, &f);
	if (v == VERDICT_REFUSE)
		return to_nobody(skb, pkt);
	if (v != VERDICT_CONTINUE)
		return v;
	if (!is_allowed(f, &pkt->tuple.src))
		return refuse(DROP_SOURCE_RANGE, f->service);
	if (table_for(pkt, f).size)
		return to_backend(skb, pkt, f);
	no_local = pkt->pod ? FRONTEND_INTERNAL_NO_LOCAL :
			      FRONTEND_EXTERNAL_NO_LOCAL;
	if (f->flags & no_local)
		return refuse(DROP_NO_LOCAL_ENDPOINT, f->service);
	refuse(DROP_NO_ENDPOINT, f->service);
	return to_nobody(skb, pkt);
}

/*
 * A packet on its way out to a backend on another node gets the address of the
 * device, so that the answer comes back here. It is one of ours if the way back
 * of the client is known. The port is none that a socket of the node may have to
 * the same backend.
 *
 * The same is done to a packet on its way into the pod that sent it: a pod
 * does not answer to itself by way of the node. Nothing else that goes into a
 * pod is changed.
 */
STEP int from_device(struct __sk_buff *skb, struct packet *pkt)
{
	struct flow way = {}, *flow;
	struct tuple back;

	if (!pkt)
		return VERDICT_PASS;
	if (pkt->pod && !same_addr(&pkt->tuple.src, &pkt->tuple.dst))
		return VERDICT_PASS;
	back = reversed(&pkt->tuple);
	flow = bpf_map_lookup_elem(&conntrack, &back);
	if (!flow || (!pkt->pod && flow->flags & FLOW_FROM_POD))
		return VERDICT_PASS;
	way.to = pkt->tuple;
	if (!device_addr(skb, &pkt->tuple.src, &way.to.src))
		return refuse(DROP_NO_ADDRESS, flow->service);
	way.to.src_port = snat_port(bpf_ntohs(pkt->tuple.src_port));
	way.last_seen_ns = bpf_ktime_get_coarse_ns();
	return begin_flow(skb, pkt, &way, HOOK_IN);
}

/* Gives a packet of a flow what that says; what has none goes on to the next step. */
STEP int follow_flow(struct __sk_buff *skb, struct packet *pkt)
{
	struct flow *flow;
	struct tuple to;

	if (!pkt || !has_ports(pkt->l4_proto) || !find_ports(skb, pkt))
		return VERDICT_PASS;
	flow = find_flow(pkt);
	if (!flow)
		return pkt->fragment || (pkt->l4_proto == IPPROTO_SCTP &&
					 pkt->more_fragments) ?
			       VERDICT_PASS :
			       VERDICT_CONTINUE;
	to = flow->to; /* a copy: the entry may come to another flow meanwhile */
	count(flow_packet);
	return rewrite(skb, pkt, &to) ? VERDICT_PASS : VERDICT_REFUSE;
}
