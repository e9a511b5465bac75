/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Flows begin, at any hook: both ways are added. */
#pragma once

#include "lost.h"
#include "snat.h"

/* Where a new flow is put together: stacks are short. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow);
} flow_scratch SEC(".maps");

static __always_inline struct flow *empty_flow(void)
{
	__u32 zero = 0;
	struct flow *flow = bpf_map_lookup_elem(&flow_scratch, &zero);

	if (flow)
		__builtin_memset(flow, 0, sizeof(*flow));
	return flow;
}

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

/* The view of a client: a pod is one on this node. */
static __always_inline struct view view_for(const struct packet *pkt,
					    const struct frontend *f)
{
	return read_view(pkt->pod ? &f->internal : &f->external);
}

/* May others stand in for the backends of that view? */
static __always_inline bool view_widens(const struct packet *pkt,
					const struct frontend *f)
{
	return f->flags &
	       (pkt->pod ? FRONTEND_INTERNAL_WIDENS : FRONTEND_EXTERNAL_WIDENS);
}

/*
 * Is the packet from or to loopback? Nobody else may speak to the services that
 * a node keeps to itself there, whatever its sysctls let in (CVE-2020-8558).
 */
static __always_inline bool is_martian(const struct packet *pkt)
{
	return is_loopback(&pkt->tuple.dst) || is_loopback(&pkt->tuple.src);
}

/*
 * Does a packet begin a flow? One in a TCP connection goes on with a way back that
 * is there, or without one if the backend was remembered for another reason.
 */
static __always_inline bool begins(const struct packet *pkt,
				   const struct flow *way)
{
	return may_begin(pkt) ||
	       (way->flags & (FLOW_TO_BACKEND | FLOW_SEEN)) == FLOW_TO_BACKEND;
}

/*
 * Adds both ways of a new flow. way->to is what its first packet becomes, which
 * the caller is to rewrite; its source port may change. A flow of a pod keeps its
 * source, since the way back is by the device of the pod wherever the backend is.
 */
STEP int begin_flow(struct packet *pkt, struct flow *way)
{
	struct flow back;
	struct tuple key;
	enum hook hook;

	if (!pkt || !way)
		return VERDICT_PASS;
	key = pkt->tuple;
	hook = other_hook(key.hook);
	way->last_seen_ns = bpf_ktime_get_coarse_ns();
	back = *way;
	other_key(&back.to, &key, key.hook);
	back.flags &= FLOW_DIRECT | FLOW_SEEN;
	if (way->flags & FLOW_TO_BACKEND)
		back.flags |= FLOW_BACK;
	if (pkt->pod)
		back.flags |= FLOW_FROM_POD;
	if (!add_way_back(&way->to, hook, &back, begins(pkt, way)))
		return begins(pkt, way) ?
			       refuse(DROP_SNAT_EXHAUSTED, way->service) :
			       refuse_lost(way->service);
	know_end(&key.dst, key.dst_port);
	if (key.hook == HOOK_IN)
		know_end(&way->to.dst, way->to.dst_port);
	else
		know_end(&way->to.src, way->to.src_port);
	if (!(way->flags & FLOW_SEEN)) {
		way->flags |= FLOW_BRIEF;
		way->place = take_place(&key);
	}
	flow_closed(bpf_map_lookup_elem(&conntrack, &key));
	flow_opened(way);
	back = *way; /* Linux 6.1 takes no value from a caller's memory */
	bpf_map_update_elem(&conntrack, &key, &back, BPF_ANY);
	count(flow_made);
	return VERDICT_CONTINUE;
}
