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
 *
 * Most packets find their entry and read it: one look-up, and no store. What is
 * to be noted is noted at the ends of a connection and once a second.
 */
#pragma once

#include "answer.h"
#include "brief.h"
#include "holds.h"
#include "nat.h"
#include "tcp.h"

/* Is a packet more than one of many? */
static __always_inline bool is_notable(const struct packet *pkt,
				       const struct flow *flow, __u64 now)
{
	return pkt->tcp_flags & (TCP_SYN | TCP_FIN | TCP_RST) ||
	       (flow->flags & (FLOW_SEEN | FLOW_BRIEF)) != FLOW_SEEN ||
	       now - flow->last_seen_ns >= NSEC_PER_SEC;
}

/*
 * Does a packet prove that its sender has seen what came by the other way? A
 * reset or a FIN proves nothing that would be worth it.
 */
static __always_inline bool confirms(const struct packet *pkt,
				     const struct tcp_seq *seq,
				     const struct flow *flow,
				     const struct flow *other)
{
	if (!(other->flags & FLOW_SEEN) ||
	    (flow->flags | other->flags) & FLOW_CLOSING)
		return false;
	if (pkt->l4_proto != IPPROTO_TCP)
		return true;
	return (pkt->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_ACK &&
	       bpf_ntohl(seq->ack) - other->next_seq < HANDSHAKE_WINDOW;
}

/* Makes the other way of a flow again: the map had no room for it. */
STEP int restore_way(const struct packet *pkt, const struct flow *flow)
{
	struct flow other;
	struct tuple key;

	if (!pkt || !flow)
		return 0;
	other = *flow;
	other_key(&other.to, &pkt->tuple, pkt->tuple.hook);
	other.flags &= FLOW_DIRECT | FLOW_SEEN;
	if (flow->flags & FLOW_TO_BACKEND)
		other.flags |= pkt->pod ? FLOW_BACK | FLOW_FROM_POD : FLOW_BACK;
	if (flow->flags & FLOW_BACK)
		other.flags |= FLOW_TO_BACKEND;
	other_key(&key, &flow->to, pkt->tuple.hook);
	bpf_map_update_elem(&conntrack, &key, &other, BPF_NOEXIST);
	count(flow_restored);
	return 0;
}

/*
 * Notes a packet of a flow: that it lives, how far it has got, whether it is
 * brief. The look-up of the other way keeps that from being the least recently
 * used, however little comes by it.
 */
STEP int note_packet(struct __sk_buff *skb, struct packet *pkt,
		     struct flow *flow)
{
	struct tcp_seq seq = {};
	struct flow *other;
	struct tuple key;
	bool first;

	if (!pkt || !flow)
		return 0;
	first = is_first_answer(flow);
	if (pkt->l4_proto == IPPROTO_TCP && !pkt->fragment) {
		bpf_skb_load_bytes(skb, pkt->l4_off + TCP_SEQ_OFF, &seq,
				   sizeof(seq));
		note_tcp(pkt, &seq, flow);
	}
	flow->last_seen_ns = bpf_ktime_get_coarse_ns();
	flow->flags |= FLOW_SEEN;
	other_key(&key, &flow->to, pkt->tuple.hook);
	other = bpf_map_lookup_elem(&conntrack, &key);
	note_load(pkt, flow, other);
	if (first)
		note_first_answer(pkt, flow);
	else if (other)
		note_repeat(pkt, flow, other);
	if (!other) {
		if (!(flow->flags & FLOW_BRIEF))
			restore_way(pkt, flow);
	} else if (flow->flags & FLOW_BRIEF) {
		if (confirms(pkt, &seq, flow, other)) {
			flow->flags &= ~FLOW_BRIEF;
			count(flow_established);
		}
	} else if (pkt->tcp_flags & TCP_FIN && other->flags & FLOW_CLOSING &&
		   !(other->flags & FLOW_BRIEF)) {
		key = pkt->tuple;
		flow->place = take_place(&key);
		flow->flags |= FLOW_BRIEF;
	}
	return 0;
}
