/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Carrying packets: the outer header comes where a packet of a client came in, and goes
 * where it comes to the home of its backend, on the device before the stack. There it is
 * what any packet of a client is, so no device is needed, no setting, and the client is
 * where the filters of reverse paths look for it.
 */
#pragma once

#include <linux/if_ether.h>
#include <linux/pkt_cls.h>

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../carry/outer.h"
#include "../carry/ring.h"
#include "../carry/way.h"
#include "../flow/express.h"
#include "../flow/table.h"
#include "../lb/frontend.h"
#include "../lib/addr.h"
#include "../lib/time.h"
#include "../lib/verdict.h"
#include "carried.h"
#include "classify.h"
#include "outer.h"
#include "packet.h"
#include "parse.h"
#include "redirect.h"

/*
 * Makes a packet ready to be carried to a peer, and says what its outer header does; false
 * if it cannot be.
 */
static __always_inline bool prepare(struct __sk_buff *skb,
				    const struct packet *pkt,
				    const struct peer *p, struct outer *o)
{
	if (skb->vlan_present && bpf_skb_vlan_pop(skb))
		return false;
	if (!(pkt->ip4 ? count_hop4(skb) : count_hop6(skb)))
		return false;
	*o = outer_of(pkt, p, read_tos(skb, pkt->ip4));
	return true;
}

/* Asks the kernel for the next hop to a peer: BPF_FIB_LKUP_RET_…, below 0 for an error. */
static __always_inline long find_way(struct __sk_buff *skb,
				     const struct peer *p,
				     struct bpf_fib_lookup *hop)
{
	aim_at(p, skb->ifindex, hop);
	return bpf_fib_lookup(skb, hop, sizeof(*hop), 0);
}

/*
 * Notes by which next hop packets go to a peer that come by a device. The epoch is from before the
 * kernel was asked.
 */
static __always_inline void note_way(__u32 peer, __u32 came_by,
				     const struct bpf_fib_lookup *hop,
				     __u32 epoch)
{
	const struct device *out = way_out(hop->ifindex);
	struct peer_way *w = way_place(peer, came_by);

	if (!w)
		return;
	w->came_by = came_by;
	w->ifindex = hop->ifindex;
	__builtin_memcpy(w->macs, hop->dmac, ETH_ALEN);
	__builtin_memcpy((void *)w->macs + ETH_ALEN, hop->smac, ETH_ALEN);
	w->mtu = hop->mtu_result;
	w->driven = out && out->flags & DEVICE_XDP;
	w->turns = out && turning(out, hop->ifindex);
	w->epoch = epoch;
	w->noted = flow_time(coarse_now());
}

/*
 * Asks the kernel by which next hop a peer is reached, and notes that: BPF_FIB_LKUP_RET_…, below 0
 * for an error. Where its hardware address is yet to be found the packet goes there already. Not
 * inlined: it is rare, and callers have no stack to spare.
 */
static __noinline long ask_way(struct __sk_buff *skb, __u32 peer,
			       const struct peer *p)
{
	__u32 epoch = current_epoch();
	struct bpf_fib_lookup hop = {};
	long found = find_way(skb, p, &hop);

	if (found == BPF_FIB_LKUP_RET_SUCCESS)
		note_way(peer, skb->ifindex, &hop, epoch);
	else if (found == BPF_FIB_LKUP_RET_NO_NEIGH)
		send_and_ask(&hop);
	return found;
}

/* What becomes of a packet whose next hop the kernel does not say. */
static __always_inline int without_way(long found)
{
	if (found == BPF_FIB_LKUP_RET_NO_NEIGH)
		return TC_ACT_REDIRECT;
	refuse(found == BPF_FIB_LKUP_RET_FRAG_NEEDED ? DROP_TOO_LONG :
						       DROP_CARRIED,
	       0);
	return TC_ACT_SHOT;
}

/*
 * Gives a carried packet the addresses of the next hop to a peer. Returns that, or NULL: then
 * *verdict is what the program is to return.
 */
static __always_inline const struct peer_way *
go_by_way(struct __sk_buff *skb, __u32 peer, const struct peer *p, int *verdict)
{
	const struct peer_way *w = known_way(peer, skb->ifindex);
	struct ethhdr *eth;
	long found;

	*verdict = TC_ACT_SHOT;
	if (!w || (!skb->gso_size && skb->len - ETH_HLEN > w->mtu)) {
		found = ask_way(skb, peer, p);
		if (found) {
			*verdict = without_way(found);
			return NULL;
		}
		w = way_place(peer, skb->ifindex);
	}
	eth = (void *)(long)skb->data;
	if (!w || (void *)(eth + 1) > (void *)(long)skb->data_end)
		return NULL;
	write_way(eth, w);
	return w;
}

/* Is a packet longer than what a peer gets? */
static __always_inline bool is_too_long(struct __sk_buff *skb,
					const struct packet *pkt,
					const struct peer *p)
{
	return most_of(p) && wire_len(skb, pkt) > most_of(p);
}

/*
 * May segments that a device is to cut get shorter, so that there is room for an outer
 * header? Not where they would have been too long without one.
 */
static __always_inline bool may_shrink(struct __sk_buff *skb,
				       const struct packet *pkt,
				       const struct peer *p)
{
	return skb->gso_size && pkt->l4_proto == IPPROTO_TCP &&
	       wire_len(skb, pkt) <= p->mtu;
}

/*
 * Carries a packet that is not too long, or whose segments may shrink, and returns what the
 * program is to return.
 */
static __always_inline int carry_whole(struct __sk_buff *skb,
				       const struct packet *pkt,
				       const struct peer *p, bool shrink)
{
	const struct peer_way *w;
	struct outer o;
	int verdict;

	if (!prepare(skb, pkt, p, &o) || !put_outer(skb, &o, shrink))
		return refuse(DROP_CARRIED, 0), TC_ACT_SHOT;
	note_carried(pkt, skb->len - ETH_HLEN);
	w = go_by_way(skb, pkt->home, p, &verdict);
	return w ? bpf_redirect(w->ifindex, 0) : verdict;
}

/* Is a packet one that a peer may have carried here? Others of this kind are tunnels. */
static __always_inline bool may_be_outer(const struct packet *pkt)
{
	bool udp = pkt->l4_proto == IPPROTO_UDP && pkt->plain;

	if (!carrying || pkt->pod || pkt->tuple.hook != HOOK_IN ||
	    pkt->l3_off > ETH_HLEN || pkt->fragment || pkt->more_fragments)
		return false;
	return udp ? pkt->tuple.dst_port == bpf_htons(carry_port) :
		     pkt->l4_proto == IPPROTO_IPIP ||
			       pkt->l4_proto == IPPROTO_IPV6;
}

/* The longest outer header, with the Ethernet header before it. */
#define MOST_BEFORE \
	(ETH_HLEN + sizeof(struct ipv6hdr) + sizeof(struct cookie_udp))

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

/*
 * Where in a frame is the packet that an outer header from a peer is before, and is it one of IPv4?
 * Behind a header of UDP its first byte says so, as that of any IP packet. 0: the peer has not carried it.
 */
static __always_inline __u32 find_inner(struct __sk_buff *skb,
					const struct packet *pkt,
					const struct peer *p, bool *ip4)
{
	struct begin {
		struct cookie_udp outer;
		__u8 version;
	} *h;

	*ip4 = pkt->l4_proto == IPPROTO_IPIP;
	if (pkt->l4_proto != IPPROTO_UDP)
		return p->flags & PEER_IPIP ? pkt->l4_off : 0;
	h = bytes_at(skb, pkt->l4_off, sizeof(*h));
	if (!h || !p->cookie_in || h->outer.cookie != p->cookie_in ||
	    (h->version >> 4 != 4 && h->version >> 4 != 6))
		return 0;
	*ip4 = h->version >> 4 == 4;
	return pkt->l4_off + sizeof(h->outer);
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

/*
 * May a peer have carried a packet that goes there? Behind a header of UDP, which has a cookie, to
 * any address of a Service. IP in IP may be of a tunnel between pods, of which one has an address
 * that a Service claims. So it goes to a carried frontend, or may do so: its port is not known.
 */
static __always_inline bool is_for_service(const struct addr_port *to, bool udp)
{
	const struct frontend *f = frontend_at(to);

	if (is_unspecified(&to->addr))
		return false;
	if (udp)
		return f || is_service_address(&to->addr);
	return to->port ? f && f->flags & FRONTEND_CARRIED :
			  is_of_kind(&to->addr, ADDRESS_CARRIED);
}

/*
 * Reads what an outer header says: DSCP and ECN, to how many homes the packet was carried before,
 * and how it goes around.
 */
static __always_inline bool read_outer(struct __sk_buff *skb,
				       struct packet *pkt, __u8 *tos)
{
	__be32 *h = bytes_at(skb, pkt->l3_off, 2 * sizeof(*h));
	__u32 first, id;

	if (!h)
		return false;
	first = bpf_ntohl(h[0]);
	id = bpf_ntohl(h[1]) >> 16;
	*tos = pkt->ip4 ? first >> 16 : first >> 20;
	pkt->tried = pkt->ip4 ? id >> OUTER_ID_TRIED_SHIFT :
				first & OUTER_TRIED;
	pkt->round = (pkt->ip4 ? id >> OUTER_ID_ROUND_SHIFT :
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
 * Takes the outer header off a packet that a peer has carried to this node, and reads what
 * was in it: VERDICT_ECHO for a question of the peer, see tc/echo.h. Any other packet stays as it
 * is: networks of pods have tunnels between the same nodes.
 */
GLOBAL_FUNC int uncover(struct __sk_buff *skb, struct packet *pkt)
{
	struct addr_port to = {};
	bool inner_ip4, echoes;
	struct peer_counts *c;
	const struct peer *p;
	__u32 *peer, inner;
	struct ip_addr src;
	__u8 tos;

	if (!pkt || pkt->end > skb->len)
		return VERDICT_CONTINUE;
	src = pkt->tuple.src;
	peer = bpf_map_lookup_elem(&peer_addresses, &src);
	p = peer ? find_peer(*peer) : NULL;
	if (!p || !is_for_us(&pkt->tuple.dst, p))
		return VERDICT_CONTINUE;
	inner = find_inner(skb, pkt, p, &inner_ip4);
	if (!inner || !read_inner_end(skb, inner, inner_ip4, &to))
		return VERDICT_CONTINUE;
	echoes = same_addr(&to.addr, &src); /* tunnels have nothing like that */
	if ((!echoes && !is_for_service(&to, pkt->l4_proto == IPPROTO_UDP)) ||
	    !read_outer(skb, pkt, &tos))
		return VERDICT_CONTINUE;
	pkt->carried = true;
	c = counts_of(*peer);
	if (c && !echoes)
		c->received++;
	if (!remove_outer(skb, pkt->l3_off, inner - pkt->l3_off, pkt->ip4,
			  inner_ip4) ||
	    ((tos & 3) == 3 && !bpf_skb_ecn_set_ce(skb)) ||
	    !read_inner(skb, pkt, inner_ip4) || is_link_local(&pkt->tuple.src))
		return refuse(DROP_CARRIED, 0);
	return echoes ? VERDICT_ECHO : VERDICT_CONTINUE;
}
