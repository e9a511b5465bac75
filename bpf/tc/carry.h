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
#include "../flow/express.h"
#include "../flow/table.h"
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
	*o = outer_of(pkt, p, read_tos(skb, pkt));
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
 * Notes by which next hop packets go from a device to a peer, for the driver, if that can send
 * them. The epoch is from before the kernel was asked.
 */
static __always_inline void note_way(__u32 came_by, const struct peer *p,
				     const struct bpf_fib_lookup *hop,
				     __u32 epoch)
{
	const struct device *out = way_out(hop->ifindex);
	struct tuple way = way_to(p, came_by);
	struct express *e;

	if (!out || !(out->flags & DEVICE_XDP))
		return;
	e = express_place_at_last(&way);
	if (!e)
		return;
	e->came = way;
	__builtin_memcpy(e->macs, hop->dmac, ETH_ALEN);
	__builtin_memcpy(e->macs + ETH_ALEN, hop->smac, ETH_ALEN);
	e->ifindex = hop->ifindex;
	e->turns_at = turning(out, hop->ifindex);
	e->mtu = hop->mtu_result;
	e->noted = flow_time(coarse_now());
	e->epoch = epoch;
}

/* Sends a carried packet to a peer: to the next hop on the way there. */
static __always_inline int send_outer(struct __sk_buff *skb,
				      const struct peer *p)
{
	__u32 epoch = express_sets ? current_epoch() : 0;
	struct bpf_fib_lookup hop = {};
	long found = find_way(skb, p, &hop);

	if (found == BPF_FIB_LKUP_RET_FRAG_NEEDED)
		return refuse(DROP_TOO_LONG, 0), TC_ACT_SHOT;
	if (found == BPF_FIB_LKUP_RET_NO_NEIGH)
		return send_and_ask(&hop);
	if (found != BPF_FIB_LKUP_RET_SUCCESS || !write_macs(skb, &hop))
		return refuse(DROP_CARRIED, 0), TC_ACT_SHOT;
	if (express_sets)
		note_way(skb->ifindex, p, &hop, epoch);
	return bpf_redirect(hop.ifindex, 0);
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
GLOBAL_FUNC int carry_whole(struct __sk_buff *skb, struct packet *pkt,
			    bool shrink)
{
	struct outer o = {};
	struct peer *p;

	if (!pkt)
		return TC_ACT_SHOT;
	p = find_peer(pkt->home);
	if (!p || !prepare(skb, pkt, p, &o) ||
	    !put_outer(skb, ETH_HLEN, &o, shrink))
		return refuse(DROP_CARRIED, 0), TC_ACT_SHOT;
	note_carried(pkt, skb->len - ETH_HLEN);
	return send_outer(skb, p);
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

/*
 * Where in a frame is the packet that an outer header is before, and is it one of IPv4? Behind
 * a header of UDP its first byte says so, as that of any IP packet.
 */
static __always_inline __u32 find_inner(struct __sk_buff *skb,
					const struct packet *pkt, bool *ip4)
{
	__u8 version = 0;

	*ip4 = pkt->l4_proto == IPPROTO_IPIP;
	if (pkt->l4_proto != IPPROTO_UDP)
		return pkt->l4_off;
	bpf_skb_load_bytes(skb, pkt->l4_off + sizeof(struct udphdr), &version,
			   sizeof(version));
	*ip4 = version >> 4 == 4;
	return *ip4 || version >> 4 == 6 ? pkt->l4_off + sizeof(struct udphdr) :
					   0;
}

/* Reads where an inner packet goes; false if that is cut short. */
static __always_inline bool read_inner_dst(struct __sk_buff *skb, __u32 inner,
					   bool ip4, struct ip_addr *dst)
{
	__be32 dst4;

	if (!ip4)
		return !bpf_skb_load_bytes(
			skb, inner + offsetof(struct ipv6hdr, daddr), dst,
			sizeof(*dst));
	if (bpf_skb_load_bytes(skb, inner + offsetof(struct iphdr, daddr),
			       &dst4, sizeof(dst4)))
		return false;
	*dst = from_ip4(dst4);
	return true;
}

/* Is it an address of a Service? */
static __always_inline bool is_service_address(const struct ip_addr *a)
{
	struct address *address = bpf_map_lookup_elem(&addresses, a);

	return address && address->kind & (ADDRESS_SERVICE | ADDRESS_FRONTEND);
}

/* Reads to how many homes a packet was carried before, and how it goes around. */
static __always_inline void read_way(struct __sk_buff *skb, struct packet *pkt)
{
	__be32 label = 0;
	__be16 id = 0;

	if (pkt->ip4) {
		bpf_skb_load_bytes(skb,
				   pkt->l3_off + offsetof(struct iphdr, id),
				   &id, sizeof(id));
		pkt->tried = bpf_ntohs(id) >> OUTER_ID_TRIED_SHIFT;
		pkt->round = bpf_ntohs(id) >> OUTER_ID_ROUND_SHIFT &
			     OUTER_ROUND;
		return;
	}
	bpf_skb_load_bytes(skb, pkt->l3_off, &label, sizeof(label));
	label = bpf_ntohl(label);
	pkt->tried = label & OUTER_TRIED;
	pkt->round = label >> OUTER_ROUND_SHIFT & OUTER_ROUND;
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
	struct ip_addr src, dst = {};
	bool inner_ip4, marked, echoes;
	struct peer_counts *c;
	__u32 *peer, inner;

	if (!pkt || pkt->end > skb->len || !is_own_address(&pkt->tuple.dst))
		return VERDICT_CONTINUE;
	src = pkt->tuple.src;
	peer = bpf_map_lookup_elem(&peer_addresses, &src);
	inner = find_inner(skb, pkt, &inner_ip4);
	if (!peer || !inner || !read_inner_dst(skb, inner, inner_ip4, &dst))
		return VERDICT_CONTINUE;
	echoes = same_addr(&dst, &src); /* tunnels have nothing like that */
	if (!echoes && !is_service_address(&dst))
		return VERDICT_CONTINUE;
	pkt->carried = true;
	read_way(skb, pkt);
	marked = (read_tos(skb, pkt) & 3) == 3;
	c = counts_of(*peer);
	if (c && !echoes)
		c->received++;
	if (!remove_outer(skb, pkt->l3_off, inner - pkt->l3_off, pkt->ip4,
			  inner_ip4) ||
	    (marked && !bpf_skb_ecn_set_ce(skb)) ||
	    !read_inner(skb, pkt, inner_ip4))
		return refuse(DROP_CARRIED, 0);
	return echoes ? VERDICT_ECHO : VERDICT_CONTINUE;
}
