/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Echoes: does what is carried get to a peer, and how long may it be? The agent has a question
 * sent within the outer header of data. Its inner packet is the answer: a datagram from the peer, or
 * from the address of a Service, to the node that asks. Behind it are zeros, so that the question is
 * as long as it is to be. The peer's datapath takes the outer header and the zeros off, and sends
 * what is left, with an answer that it proves. So no sender gets more than it has sent. A peer
 * answers for ten minutes without an agent. The datapath that has asked takes the echo before the
 * stack does: connection tracking may have its ends for those of a pod.
 */
#pragma once

#include <linux/if_ether.h>
#include <linux/pkt_cls.h>

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../carry/outer.h"
#include "../carry/proof.h"
#include "../carry/ring.h"
#include "../lib/addr.h"
#include "../lib/hash.h"
#include "../lib/verdict.h"
#include "carry.h"
#include "classify.h"
#include "outer.h"
#include "packet.h"
#include "parse.h"
#include "redirect.h"
#include "refuse.h"
#include "reset.h"
#include "uncover.h"

/*
 * A CPU sends a peer so many in a unit of time, which is about a second. Each peer has a budget of its
 * own: what one node sends gets no other node given up.
 */
#define ECHOES_PER_TIME 256
#define ECHO_TIME_SHIFT 30
#define ECHO_PROVEN 56 /* bytes that a proof covers */

static __always_inline bool may_echo(const struct ip_addr *to)
{
	__u32 *peer = bpf_map_lookup_elem(&peer_addresses, to);
	struct peer_counts *c = peer ? counts_of(*peer) : NULL;
	__u32 now = bpf_ktime_get_coarse_ns() >> ECHO_TIME_SHIFT;

	if (!c)
		return false;
	if (c->echo_time != now) {
		c->echo_time = now;
		c->echoes = 0;
	}
	return c->echoes++ < ECHOES_PER_TIME;
}

/*
 * The proof of an echo by a key of proofs: SipHash-1-3 over its ends, the question, and how the node
 * carries that sends it. A proof of a carried packet (carry/proof.h) covers another number of bytes.
 */
static __always_inline __u64 echo_proof(const volatile __u64 *key,
					const struct tuple *t,
					const struct echo_payload *e)
{
	struct siphash s = sip_begin(key);

	sip_words(&s, t->src.word);
	sip_words(&s, t->src.word + 2);
	sip_words(&s, t->dst.word);
	sip_words(&s, t->dst.word + 2);
	sip_word(&s, e->question.nonce);
	sip_word(&s, (__u64)e->question.number << 32 | e->question.peer);
	sip_word(&s, e->answer.alike);
	return sip_end(&s, ECHO_PROVEN, 0);
}

/* Does this node answer questions? Its agent says so, for a time. */
static __always_inline bool takes_questions(void)
{
	__u32 zero = 0;
	struct about *a = bpf_map_lookup_elem(&about, &zero);

	return a && *(volatile __u64 *)&a->echoes_until_ns >
			    bpf_ktime_get_coarse_ns();
}

/* Is an inner packet the answer to its sender, from an address that this node may answer from? */
static __always_inline bool is_echo(struct __sk_buff *skb, struct packet *pkt)
{
	struct ip_addr src = pkt->tuple.src;

	return pkt->l4_proto == IPPROTO_UDP && !pkt->fragment &&
	       !pkt->more_fragments && pkt->end <= skb->len &&
	       (pkt->plain || parse_ports(skb, pkt)) &&
	       pkt->tuple.src_port == bpf_htons(carry_port) &&
	       pkt->tuple.dst_port == bpf_htons(carry_port) &&
	       (is_own_address(&src) || is_service_address(&src));
}

/* Writes the answer into an inner packet, and its checksum. */
static __always_inline bool write_answer(struct __sk_buff *skb,
					 const struct packet *pkt)
{
	__u32 at = pkt->l4_off + sizeof(struct udphdr);
	struct echo_answer none;
	struct echo_payload e;
	__s64 change;

	if (bpf_skb_load_bytes(skb, at, &e, sizeof(e)))
		return false;
	none = e.answer;
	e.answer.alike = carry_alike;
	e.answer.proof = echo_proof(carry_keys[0], &pkt->tuple, &e);
	change = bpf_csum_diff((__be32 *)&none, sizeof(none),
			       (__be32 *)&e.answer, sizeof(e.answer), 0);
	return !bpf_l4_csum_replace(
		       skb, pkt->l4_off + offsetof(struct udphdr, check), 0,
		       change, BPF_F_MARK_MANGLED_0) &&
	       !bpf_skb_store_bytes(skb,
				    at + offsetof(struct echo_payload, answer),
				    &e.answer, sizeof(e.answer), 0);
}

/*
 * Sends what was in the outer header of a question back to where that came from, with an answer, and
 * returns what the program is to return. Where a card has told the kernel of the outer header that
 * cuts nothing off: then the zeros go, too, behind the end of the packet, as Ethernet pads one.
 */
GLOBAL_FUNC int echo(struct __sk_buff *skb, struct packet *pkt)
{
	struct ip_addr to;

	if (!pkt)
		return TC_ACT_SHOT;
	if (!is_echo(skb, pkt))
		return refuse_packet(pkt, DROP_CARRIED, 0), TC_ACT_SHOT;
	to = pkt->tuple.dst;
	if (!takes_questions() || !may_echo(&to)) {
		count(echo_refused);
		return TC_ACT_SHOT;
	}
	bpf_skb_change_tail(skb, pkt->end, 0);
	if (!write_answer(skb, pkt))
		return refuse_packet(pkt, DROP_CARRIED, 0), TC_ACT_SHOT;
	if (pkt->l3_off && !swap_macs(skb))
		return TC_ACT_SHOT;
	return bpf_redirect(skb->ifindex, 0);
}

/* Is a datagram from where a question of the round is to come back from? */
static __always_inline bool is_echo_of(const struct packet *pkt,
				       const struct echo_round *round,
				       const struct peer *p, __u32 question)
{
	return same_addr(&pkt->tuple.src, question == ECHO_OF_SERVICE ?
						  &round->service :
						  &p->theirs) &&
	       same_addr(&pkt->tuple.dst, &p->ours);
}

/* Has a node of the cluster answered, by one of the keys? */
static __always_inline bool is_echo_proven(const struct tuple *t,
					   const struct echo_payload *e)
{
#pragma nounroll
	for (int i = 0; i < 2; i++) {
		if (echo_proof(carry_keys[i], t, e) == e->answer.proof)
			return true;
	}
	return false;
}

/* Echoes that may be in a packet: a card may have merged those of one round. */
struct echoes {
	struct __sk_buff *skb;
	const struct packet *pkt;
	bool taken;
};

/* Notes an echo by its number in a packet, if it is one. */
static long note_echo(__u32 i, void *data)
{
	struct echoes *in = data;
	__u32 first = in->pkt->l4_off + sizeof(struct udphdr);
	struct echo_payload e;
	struct echo_round *round;
	const struct peer *p;
	__u64 bits;

	if (bpf_skb_load_bytes(in->skb, first + i * in->skb->gso_size, &e,
			       sizeof(e)))
		return 1;
	p = find_peer(e.question.peer);
	round = bpf_map_lookup_elem(&echo_rounds, &e.question.peer);
	if (!p || !round || !e.question.nonce ||
	    e.question.nonce != round->nonce ||
	    e.question.number >= ECHO_MOST ||
	    !is_echo_of(in->pkt, round, p, e.question.number) ||
	    !is_echo_proven(&in->pkt->tuple, &e))
		return 0;
	bits = 1ULL << e.question.number;
	if (e.answer.alike != carry_alike)
		bits |= 1ULL << ECHO_UNLIKE;
	__sync_fetch_and_or(&round->back, bits);
	in->taken = true;
	return 0;
}

/* Takes echoes of questions of this node, and returns whether a packet has some. */
GLOBAL_FUNC int take_echo(struct __sk_buff *skb, struct packet *pkt)
{
	struct echoes in = { .skb = skb, .pkt = pkt };

	if (!pkt)
		return 0;
	bpf_loop(skb->gso_size ? ECHO_MOST : 1, note_echo, &in, 0);
	return in.taken;
}

/* Takes what a peer has carried here, and returns TC_ACT_UNSPEC where a packet goes on. */
static __always_inline int take_carried(struct __sk_buff *skb,
					struct packet *pkt)
{
	if (!may_be_outer(pkt))
		return TC_ACT_UNSPEC;
	if (pkt->tuple.src_port == bpf_htons(carry_port))
		return take_echo(skb, pkt) ? TC_ACT_SHOT : TC_ACT_UNSPEC;
	switch (uncover(skb, pkt)) {
	case VERDICT_REFUSE:
		return TC_ACT_SHOT;
	case VERDICT_ECHO:
		return echo(skb, pkt);
	default:
		return TC_ACT_UNSPEC;
	}
}

/*
 * Asks a peer, whose ID is in cb[0]: the frame is the answer behind an Ethernet header, and cb[1]
 * how many bytes the packet is to have with its outer header, if it has fewer. To networks each is
 * another flow. False: it was not sent, since there is no such peer, or no next hop that is known.
 */
static __always_inline bool send_question(struct __sk_buff *skb)
{
	struct bpf_fib_lookup hop = {};
	struct peer *p = find_peer(skb->cb[0]);
	__u32 bytes = skb->cb[1], outer;
	struct outer o = {
		.peer = p,
		.len = skb->len - ETH_HLEN,
		.inner_ip4 = skb->protocol == bpf_htons(ETH_P_IP),
		.flow_port = bpf_htons(FIRST_FLOW_PORT |
				       bpf_get_prandom_u32() >> 18),
	};

	if (!p || find_way(skb, p, &hop) != BPF_FIB_LKUP_RET_SUCCESS)
		return false;
	outer = outer_len(p);
	if (bytes > outer + o.len)
		o.len = bytes - outer;
	return !bpf_skb_change_tail(skb, ETH_HLEN + o.len, 0) &&
	       prove_here(skb, &o, false) &&
	       !bpf_skb_adjust_room(skb, outer, BPF_ADJ_ROOM_MAC, 0) &&
	       write_outer_here(skb, &o) && write_macs(skb, &hop) &&
	       !bpf_clone_redirect(skb, hop.ifindex, 0);
}
