/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Which packets may have to do with a Service? Most do not, see lib/filter.h. Which view does
 * a client get by them? And which ones are forged, or would the stack discard?
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../lb/frontend.h"
#include "../lib/addr.h"
#include "../lib/filter.h"
#include "packet.h"

/*
 * May there be a flow with an end of a packet? Its destination counts and, where it
 * leaves, its source, too. A source where a frontend answers begins one, see from_node.
 */
static __always_inline bool may_have_flow(const struct tuple *t)
{
	return flow_filter_has(&t->dst, t->dst_port) ||
	       (t->hook == HOOK_OUT &&
		(flow_filter_has(&t->src, t->src_port) ||
		 answer_filter_has(&t->src, t->src_port)));
}

/* May a packet without a flow begin one? */
static __always_inline bool may_be_balanced(const struct tuple *t)
{
	return t->hook == HOOK_IN &&
	       (address_filter_has(&t->dst) || in_service_cidr(&t->dst));
}

/* May the packet be for a Service, or for a flow of one? */
static __always_inline bool may_be_ours(const struct packet *pkt)
{
	struct ip_addr dst = pkt->tuple.dst;

	return pkt->tuple.hook == HOOK_IN &&
	       bpf_map_lookup_elem(&addresses, &dst);
}

/*
 * Which view a client gets: a pod is on this node. To the compiler a bool is 0 or
 * 1, to the verifier any byte: the mask holds for both.
 */
static __always_inline enum view_index client_view(const struct packet *pkt)
{
	enum view_index i = pkt->pod ? VIEW_INTERNAL : VIEW_EXTERNAL;

	asm volatile("" : "+r"(i));
	return i & (CLIENT_VIEWS - 1);
}

/*
 * Is the packet from or to loopback? What listens there is for the node alone,
 * whatever its sysctls let in (CVE-2020-8558).
 */
static __always_inline bool is_martian(const struct tuple *t)
{
	return t->hook == HOOK_IN &&
	       (is_loopback(&t->dst) || is_loopback(&t->src));
}

/*
 * Can an address be no client's? 0.0.0.0/8, multicast and broadcast, but not the
 * rest of 240.0.0.0/4: networks use it, and the stack takes it.
 */
static __always_inline bool is_no_source(const struct ip_addr *a)
{
	__u32 ip4 = bpf_ntohl(a->word[3]);

	if (!is_ip4(a))
		return is_unspecified(a) || bpf_ntohl(a->word[0]) >> 24 == 0xff;
	return ip4 >> 24 == 0 || ip4 >> 28 == 14 || ip4 == 0xffffffff;
}

/* Is an address one of a single link, 169.254.0.0/16 or fe80::/10? */
static __always_inline bool is_link_local(const struct ip_addr *a)
{
	return is_ip4(a) ? bpf_ntohl(a->word[3]) >> 16 == 0xa9fe :
			   bpf_ntohl(a->word[0]) >> 22 == 0x3fa;
}

/* Is a packet for the port at which nodes get carried packets and echoes? */
static __always_inline bool is_to_carry_port(const struct packet *pkt)
{
	return pkt->l4_proto == IPPROTO_UDP &&
	       pkt->tuple.dst_port == bpf_htons(carry_port);
}

/* Is it one of the node's own addresses? */
static __always_inline bool is_own_address(const struct ip_addr *a)
{
	/* A copy: what a global function is given is no key before Linux 6.2. */
	struct ip_addr key = *a;
	struct address *address;

	if (!address_filter_has(a))
		return false;
	address = bpf_map_lookup_elem(&addresses, &key);
	return address && address->kind & (ADDRESS_NODE | ADDRESS_OWN);
}

/* Is an address of one of some kinds, a set of bits? */
static __always_inline bool is_of_kind(const struct ip_addr *a, __u32 kinds)
{
	/* A copy, as above. */
	struct ip_addr key = *a;
	struct address *address = bpf_map_lookup_elem(&addresses, &key);

	return address && address->kind & kinds;
}

/* Is it an address of a Service? */
static __always_inline bool is_service_address(const struct ip_addr *a)
{
	return is_of_kind(a, ADDRESS_SERVICE | ADDRESS_FRONTEND);
}

/*
 * Would the stack discard a packet that comes in, wherever it is for? Then it
 * begins no flow: state and the health of backends are for clients that can be
 * answered. It is left to the stack.
 */
static __always_inline bool is_discarded(const struct packet *pkt)
{
	return is_unspecified(&pkt->tuple.dst) ||
	       is_no_source(&pkt->tuple.src) || is_own_address(&pkt->tuple.src);
}

/*
 * Is a datagram of UDP from where a Service answers? Its answer would be a question to that
 * Service: two servers would answer each other for ever. A Service can name any address as its
 * external IP: to other Services that is a client.
 */
static __always_inline bool is_from_frontend(const struct tuple *t,
					     const struct frontend *to)
{
	struct addr_port at = {
		.addr = t->src,
		.port = t->src_port,
		.protocol = t->protocol,
	};
	struct frontend *from;

	if (t->protocol != IPPROTO_UDP || !address_filter_has(&t->src))
		return false;
	from = frontend_at(&at);
	return is_open(from) && (!(from->flags & FRONTEND_EXTERNAL_IP) ||
				 from->service == to->service);
}

/*
 * Does this node not pass a packet on to a backend, since its time to live ends
 * here? The stack then tells the client so, about the packet that it has sent.
 */
static __always_inline bool ends_here(const struct packet *pkt)
{
	return pkt->hops <= 1;
}
