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
	return own->word[0] | own->word[1] | own->word[2] | own->word[3];
}

/*
 * Adds both ways of a new flow and rewrites its first packet. way->to is what
 * that becomes; its source port may change.
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
	};

	back.to.hook = back_hook;
	if (!add_way_back(&way->to, back_hook, &back))
		return refuse(DROP_SNAT_EXHAUSTED, way->service);
	bpf_map_update_elem(&conntrack, &key, way, BPF_ANY);
	count(flow_made);
	return rewrite(skb, pkt, &way->to) ? VERDICT_CONTINUE : VERDICT_REFUSE;
}

/* A packet for a frontend, from a client elsewhere, goes to a backend. */
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

	v = select_from(f, f->external, &pkt->tuple.src, &choice);
	if (v != VERDICT_CONTINUE)
		return v;
	way.to.dst = choice.backend->to.addr;
	way.to.dst_port = choice.backend->to.port;
	way.backend_id = choice.id;
	way.slot = choice.slot;
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

/* May the client use the frontend? Most let everybody. */
static __always_inline bool is_allowed(const struct frontend *f,
				       const struct ip_addr *client)
{
	struct source_range key = {
		.prefixlen = 8 * (sizeof(key.service) + sizeof(key.addr)),
		.service = f->service,
		.addr = *client,
	};

	return !(f->flags & FRONTEND_SOURCE_RANGES) ||
	       bpf_map_lookup_elem(&source_ranges, &key);
}

/* What becomes of a packet that may be for a frontend. */
STEP int balance(struct __sk_buff *skb, struct packet *pkt)
{
	struct addr_port dst = {};
	struct frontend *f;
	enum verdict v;

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
	if (f->external.size)
		return to_backend(skb, pkt, f);
	if (f->flags & FRONTEND_EXTERNAL_NO_LOCAL)
		return refuse(DROP_NO_LOCAL_ENDPOINT, f->service);
	refuse(DROP_NO_ENDPOINT, f->service);
	return to_nobody(skb, pkt);
}

/*
 * A packet on its way out to a backend on another node gets the address of the
 * device, so that the answer comes back here. It is one of ours if the way back
 * of the client is known. The port is none that a socket of the node may have to
 * the same backend.
 */
STEP int from_device(struct __sk_buff *skb, struct packet *pkt)
{
	struct flow way = {};
	struct tuple back;

	if (!pkt)
		return VERDICT_PASS;
	back = reversed(&pkt->tuple);
	if (!bpf_map_lookup_elem(&conntrack, &back))
		return VERDICT_PASS;
	way.to = pkt->tuple;
	if (!device_addr(skb, &pkt->tuple.src, &way.to.src))
		return VERDICT_PASS;
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
