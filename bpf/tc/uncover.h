/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Takes the outer header off a packet that a peer has carried to this node, as its proof says. Other
 * packets stay as they are.
 */
#pragma once

#include <linux/if_ether.h>

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../carry/outer.h"
#include "../carry/proof.h"
#include "../carry/ring.h"
#include "../lb/frontend.h"
#include "../lib/addr.h"
#include "../lib/verdict.h"
#include "classify.h"
#include "outer.h"
#include "packet.h"
#include "parse.h"
#include "refuse.h"

/* Is a packet one that a peer may have carried here? */
static __always_inline bool may_be_outer(const struct packet *pkt)
{
	return carrying && !pkt->pod && pkt->tuple.hook == HOOK_IN &&
	       pkt->l3_off <= ETH_HLEN && pkt->plain && is_to_carry_port(pkt);
}

/* The first bytes of what agents of earlier versions ask, "headgate": no proof begins so. */
#define AGENT_QUESTION bpf_cpu_to_be64(0x6865616467617465ULL)

/* The longest outer header, with the Ethernet header before it. */
#define MOST_BEFORE \
	(ETH_HLEN + sizeof(struct ipv6hdr) + sizeof(struct proof_udp))

/*
 * So many bytes of a frame from a place that is at most MOST_BEFORE on, or NULL where they are not
 * within reach. Before Linux 6.8 the verifier has to see how large the place is where it is added,
 * and that what is compared is where they begin and a constant.
 */
static __always_inline void *within_reach(struct __sk_buff *skb, __u32 off,
					  __u32 len)
{
	void *at;

	asm volatile("" : "+r"(off));
	at = (void *)(long)skb->data + (off & 127);
	asm volatile("" : "+r"(at));
	return at + len <= (void *)(long)skb->data_end ? at : NULL;
}

_Static_assert(MOST_BEFORE < 128, "within_reach masks places");

/* So many bytes of a frame, which may have to be brought into reach; NULL if it is shorter. */
static __always_inline void *bytes_at(struct __sk_buff *skb, __u32 off,
				      __u32 len)
{
	void *at;

	if (off > MOST_BEFORE)
		return NULL;
	at = within_reach(skb, off, len);
	if (at || bpf_skb_pull_data(skb, off + len))
		return at;
	return within_reach(skb, off, len);
}

/* An outer header's statement about the packet behind it. */
struct outer_said {
	__u32 inner; /* where in the frame that begins */
	bool ip4;    /* and is it one of IPv4? */
	__u8 tos;    /* DSCP and ECN */
	__u8 tried;  /* to how many homes it was carried before */
	__u8 round;
};

/* Does a proof hold, by one of the keys? */
static __noinline bool is_proven(struct __sk_buff *skb,
				 const struct packet *pkt,
				 const struct outer_said *said, __u64 proof)
{
	struct proven v = {
		.len = pkt->end - said->inner,
		.ip4 = said->ip4,
		.ring = said->round << PROOF_ROUND_SHIFT | said->tried,
	};
	__u64 ours;

	reach(skb, MOST_BEFORE + sizeof(struct proven6));
	v.inner = bytes_at(skb, said->inner, sizeof(struct iphdr));
	v.data_end = (void *)(long)skb->data_end;
	if (!v.inner || pkt->end < said->inner)
		return false;
#pragma nounroll
	for (int i = 0; i < 2; i++) {
		if (proof_of(carry_keys[i], &pkt->tuple.src, &pkt->tuple.dst,
			     &v, &ours) &&
		    ours == proof)
			return true;
	}
	return false;
}

/*
 * Finds the packet behind an outer header, and its family by its first byte. False: no node has
 * carried it.
 */
static __always_inline bool find_inner(struct __sk_buff *skb,
				       const struct packet *pkt,
				       struct outer_said *said)
{
	struct begin {
		struct proof_udp outer;
		__u8 version;
	} *h;
	__u8 version;

	h = bytes_at(skb, pkt->l4_off, sizeof(*h));
	if (!h)
		return false;
	version = h->version >> 4;
	said->inner = pkt->l4_off + sizeof(h->outer);
	said->ip4 = version == 4;
	return (version == 4 || version == 6) &&
	       is_proven(skb, pkt, said, h->outer.proof);
}

/* Reads where an inner packet goes; false if its header is cut short. A port of 0 is not known. */
static __always_inline bool read_inner_end(struct __sk_buff *skb, __u32 inner,
					   bool ip4, struct addr_port *to)
{
	struct plain_ip4 *h4;
	struct plain_ip6 *h6;

	if (ip4) {
		h4 = bytes_at(skb, inner, sizeof(h4->ip));
		if (!h4)
			return false;
		to->addr = from_ip4(h4->ip.daddr);
		to->protocol = h4->ip.protocol;
		if (!has_ports(to->protocol) || !is_whole4(&h4->ip))
			return true;
		h4 = bytes_at(skb, inner, sizeof(*h4));
		to->port = h4 ? h4->ports.dst : 0;
		return true;
	}
	h6 = bytes_at(skb, inner, sizeof(h6->ip));
	if (!h6)
		return false;
	to->addr = from_ip6(&h6->ip.daddr);
	to->protocol = h6->ip.nexthdr;
	if (!has_ports(to->protocol))
		return true;
	h6 = bytes_at(skb, inner, sizeof(*h6));
	to->port = h6 ? h6->ports.dst : 0;
	return true;
}

/* Does a packet go to a Service? */
static __always_inline bool is_for_service(const struct addr_port *to)
{
	return !is_unspecified(&to->addr) &&
	       (frontend_at(to) || is_service_address(&to->addr));
}

/*
 * Reads what an outer header says: DSCP and ECN, to how many homes the packet was carried before,
 * and how it goes around.
 */
static __always_inline bool read_outer(struct __sk_buff *skb,
				       const struct packet *pkt,
				       struct outer_said *said)
{
	__be32 *h = bytes_at(skb, pkt->l3_off, 2 * sizeof(*h));
	__u32 first, id;

	if (!h)
		return false;
	first = bpf_ntohl(h[0]);
	id = bpf_ntohl(h[1]) >> 16;
	said->tos = pkt->ip4 ? first >> 16 : first >> 20;
	said->tried = pkt->ip4 ? id >> OUTER_ID_TRIED_SHIFT :
				 first & OUTER_TRIED;
	said->round = (pkt->ip4 ? id >> OUTER_ID_ROUND_SHIFT :
				  first >> OUTER_ROUND_SHIFT) &
		      OUTER_ROUND;
	return true;
}

/* Was a packet sent to this node by a peer? */
static __always_inline bool is_for_us(const struct ip_addr *dst,
				      const struct peer *p)
{
	return same_addr(dst, &p->ours) || is_own_address(dst);
}

/* Reads a packet that has lost its outer header. */
static __always_inline bool read_inner(struct __sk_buff *skb,
				       struct packet *pkt, bool ip4)
{
	__u32 kind = ip4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
	__u32 l3_off = pkt->l3_off ? ETH_HLEN : 0;

	pkt->end = skb->len;
	pkt->plain = pkt->flowless = false;
	return read_plain((void *)(long)skb->data, (void *)(long)skb->data_end,
			  kind, pkt, l3_off) ||
	       parse(skb, pkt, l3_off, kind);
}

/*
 * Is a datagram a question of an agent of an earlier version? A refusal of the stack would tell that
 * agent that the datapath carries on.
 */
static __always_inline bool asks_agent(struct __sk_buff *skb,
				       const struct packet *pkt)
{
	struct proof_udp *h = bytes_at(skb, pkt->l4_off, sizeof(*h));

	return h && h->proof == AGENT_QUESTION;
}

/*
 * Takes the outer header off a packet that a peer has carried to this node, and reads what
 * was in it: VERDICT_ECHO for a question of the peer, see tc/echo.h. Any other packet stays as it
 * is.
 */
GLOBAL_FUNC int uncover(struct __sk_buff *skb, struct packet *pkt)
{
	struct outer_said said = {};
	struct addr_port to = {};
	struct peer_counts *c;
	const struct peer *p;
	struct ip_addr src;
	__u32 *peer;
	bool echoes;

	if (!pkt || pkt->end > skb->len)
		return VERDICT_CONTINUE;
	src = pkt->tuple.src;
	peer = bpf_map_lookup_elem(&peer_addresses, &src);
	p = peer ? find_peer(*peer) : NULL;
	if (!p || !is_for_us(&pkt->tuple.dst, p))
		return VERDICT_CONTINUE;
	if (!read_outer(skb, pkt, &said) || !find_inner(skb, pkt, &said) ||
	    !read_inner_end(skb, said.inner, said.ip4, &to))
		return asks_agent(skb, pkt) ?
			       refuse_packet(pkt, DROP_CARRIED, 0) :
			       VERDICT_CONTINUE;
	echoes = same_addr(&to.addr, &src);
	if (!echoes && !is_for_service(&to))
		return VERDICT_CONTINUE;
	pkt->carried = true;
	pkt->by_ip4 = pkt->ip4;
	pkt->tried = said.tried;
	pkt->round = said.round;
	c = counts_of(*peer);
	if (c && !echoes)
		c->received++;
	if (!remove_outer(skb, pkt->l3_off, said.inner - pkt->l3_off, pkt->ip4,
			  said.ip4) ||
	    ((said.tos & 3) == 3 && !bpf_skb_ecn_set_ce(skb)) ||
	    !read_inner(skb, pkt, said.ip4) || is_link_local(&pkt->tuple.src))
		return refuse_packet(pkt, DROP_CARRIED, 0);
	return echoes ? VERDICT_ECHO : VERDICT_CONTINUE;
}
