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

#define SNAT_TRIES 16
#define TCP_FLAGS_OFF 13
#define TCP_SYN 0x02
#define TCP_ACK 0x10

/* Chooses a backend for a client elsewhere. */
static __always_inline enum verdict
select_external(const struct frontend *f, const struct ip_addr *client,
		struct choice *c)
{
	if (!f->external.size)
		return refuse(f->flags & FRONTEND_EXTERNAL_NO_LOCAL ?
				      DROP_NO_LOCAL_ENDPOINT :
				      DROP_NO_ENDPOINT,
			      f->service);
	return select_from(f, f->external, client, c);
}

/* Does the packet begin a connection? Datagrams may always begin one. */
static __always_inline bool may_begin(struct __sk_buff *skb,
				      const struct packet *pkt)
{
	__u8 flags;

	if (pkt->l4_proto != IPPROTO_TCP)
		return true;
	return !pkt->fragment &&
	       !bpf_skb_load_bytes(skb, pkt->l4_off + TCP_FLAGS_OFF, &flags,
				   sizeof(flags)) &&
	       (flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
}

/*
 * Does a flow still hold? An established connection does until it ends by
 * itself; what may begin anew needs a backend that the Service still has, and
 * datagrams must not have paused for too long.
 */
static __always_inline bool still_flows(struct __sk_buff *skb,
					const struct packet *pkt,
					struct flow *flow, __u64 now)
{
	struct frontend *f;

	if (!(flow->flags & (FLOW_TO_BACKEND | FLOW_REFUSED)) ||
	    !may_begin(skb, pkt))
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
static __always_inline struct flow *find_flow(struct __sk_buff *skb,
					      const struct packet *pkt)
{
	struct flow *flow = bpf_map_lookup_elem(&conntrack, &pkt->tuple);
	__u64 now = bpf_ktime_get_coarse_ns();

	if (!flow || !still_flows(skb, pkt, flow, now))
		return NULL;
	flow->last_seen_ns = now;
	return flow;
}

/* Adds an entry, unless the tuple has another one already. */
static __always_inline bool add_flow(const struct tuple *key,
				     const struct flow *flow)
{
	struct flow *old;

	if (!bpf_map_update_elem(&conntrack, key, flow, BPF_NOEXIST))
		return true;
	old = bpf_map_lookup_elem(&conntrack, key);
	return old && same_tuple(&old->to, &flow->to);
}

/* The search for a source port by which a way back is free. */
struct port_search {
	struct tuple key;
	const struct flow *back;
	__u32 random;
	bool found;
};

/* One try; 1 ends the search. A callback, so that it is verified once. */
static long try_port(__u32 i, void *data)
{
	struct port_search *s = data;

	if (i)
		s->key.dst_port =
			bpf_htons(snat_port_low +
				  ((s->random + i * 0x9e37) & snat_port_mask));
	s->found = add_flow(&s->key, s->back);
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
		.key = reversed(to),
		.back = back,
		.random = bpf_get_prandom_u32(),
	};

	s.key.hook = back_hook;
	bpf_loop(SNAT_TRIES, try_port, &s, 0);
	to->src_port = s.key.dst_port;
	return s.found;
}
