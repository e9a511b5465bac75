/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Cutting: a packet of IPv4 that is too long with its outer header, and may be fragmented, is
 * carried in pieces, as a router would send it. The home, or the pod, puts them together.
 */
#pragma once

#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>

#include "../abi/maps.h"
#include "../carry/outer.h"
#include "../carry/ring.h"
#include "../lib/addr.h"
#include "../lib/csum.h"
#include "../lib/verdict.h"
#include "carried.h"
#include "carry.h"
#include "fragment.h"
#include "outer.h"
#include "packet.h"
#include "parse.h"
#include "redirect.h"
#include "refuse.h"
#include "reset.h"

/* Where in an IPv4 header its length and its fragmentation stand. */
struct ip4_piece {
	__be16 len;
	__be16 id;
	__be16 fragment;
};

/* Makes an IPv4 header at an offset that of a piece of so many bytes. */
static __always_inline bool write_piece(struct __sk_buff *skb, __u32 l3_off,
					__u32 len, __u16 fragment)
{
	__u32 off = l3_off + offsetof(struct iphdr, tot_len), sum = 0;
	struct ip4_piece p;

	if (bpf_skb_load_bytes(skb, off, &p, sizeof(p)))
		return false;
	sum = sum_replace(sum, p.len, bpf_htons(len));
	sum = sum_replace(sum, p.fragment, bpf_htons(fragment));
	p.len = bpf_htons(len);
	p.fragment = bpf_htons(fragment);
	return !bpf_skb_store_bytes(skb, off, &p, sizeof(p), 0) &&
	       !bpf_l3_csum_replace(skb, l3_off + offsetof(struct iphdr, check),
				    0, sum, 0);
}

/* What an IPv4 header says of fragments. */
static __always_inline __u16 read_fragment(struct __sk_buff *skb,
					   const struct packet *pkt)
{
	__be16 fragment = bpf_htons(IP4_DONT_FRAGMENT);

	bpf_skb_load_bytes(skb, pkt->l3_off + offsetof(struct iphdr, frag_off),
			   &fragment, sizeof(fragment));
	return bpf_ntohs(fragment);
}

/* So much is summed up by one call, in bytes. */
#define SUM_CHUNK 512

/* A packet that is being cut. */
struct cutting {
	struct __sk_buff *skb;
	const struct packet *pkt;
	struct cut_packet *kept; /* its payload, that of IP */
	struct outer o;
	__u32 header; /* of it, in bytes */
	__u32 len;    /* of its payload */
	__u32 most;   /* of that in a piece */
	__u32 ifindex;
	__u32 sum;
	__u16 fragment; /* what its header says of fragments */
	bool broken;	/* the packet is no piece */
};

/* Is a length of payload one from 1 to CUT_MOST? Before Linux 6.8 the verifier takes != for no bound. */
static __always_inline bool is_to_keep(__u64 *len)
{
	__u64 less = *len - 1;

	keep_apart(less);
	if (less >= CUT_MOST)
		return false;
	keep_apart(less);
	*len = less + 1;
	return true;
}

/* Keeps the payload; false if that is too long. */
static __always_inline bool keep_payload(struct cutting *c)
{
	__u64 len = c->len;

	if (!is_to_keep(&len))
		return false;
	for (int i = 0; i < 3; i++)
		c->kept->payload[len + i] = 0; /* sums are of whole words */
	return !bpf_skb_load_bytes(c->skb, c->pkt->l4_off, c->kept->payload,
				   len);
}

static long add_chunk(__u32 i, void *data)
{
	struct cutting *c = data;
	__u64 at = i * SUM_CHUNK;
	__u32 len = c->len - at;

	keep_apart(at);
	if (at > CUT_MOST)
		return 1;
	keep_apart(at);
	if (len > SUM_CHUNK)
		len = SUM_CHUNK;
	c->sum = bpf_csum_diff(NULL, 0, (void *)c->kept->payload + at,
			       (len + 3) & ~3U, c->sum);
	return 0;
}

/*
 * Replaces the first bytes behind the Ethernet header by as many and some more, which are zero. The
 * kernel then knows of no checksum any more that a device is to finish: it forgets where one begins
 * once that has been cut off.
 */
static __always_inline bool renew_begin(struct __sk_buff *skb, __u32 more)
{
	return !bpf_skb_adjust_room(skb, -CUT_BEGIN, BPF_ADJ_ROOM_MAC, 0) &&
	       !bpf_skb_adjust_room(skb, CUT_BEGIN + more, BPF_ADJ_ROOM_MAC, 0);
}

/* Has the kernel take the checksum of a packet for one that no device is to finish. */
static __always_inline bool take_for_finished(struct cutting *c)
{
	__u8 *begin = c->kept->begin;

	return !bpf_skb_load_bytes(c->skb, ETH_HLEN, begin, CUT_BEGIN) &&
	       renew_begin(c->skb, 0) &&
	       !bpf_skb_store_bytes(c->skb, ETH_HLEN, begin, CUT_BEGIN, 0);
}

/*
 * Finishes the checksum of TCP or UDP if a device is yet to do so, which would do it of each piece.
 * Then it is a sum of what is not in the segment. One in 65,536 that are finished are the same, and
 * the outcome is then, too.
 */
static __always_inline bool finish_sum(struct cutting *c)
{
	const struct packet *pkt = c->pkt;
	__u16 *csum = (void *)c->kept->payload + UDP_CSUM_OFF;

	if (pkt->fragment || pkt->more_fragments)
		return true;
	if (pkt->l4_proto == IPPROTO_TCP)
		csum = (void *)c->kept->payload + TCP_CSUM_OFF;
	else if (pkt->l4_proto != IPPROTO_UDP)
		return true;
	if (*csum != sum_fold(pseudo_sum(&pkt->tuple, pkt->l4_proto, c->len)))
		return true;
	bpf_loop((c->len + SUM_CHUNK - 1) / SUM_CHUNK, add_chunk, c, 0);
	*csum = ~sum_fold(c->sum);
	if (!*csum)
		*csum = 0xffff;
	return take_for_finished(c);
}

/* Makes the packet the piece whose payload begins somewhere in what was kept. */
static __always_inline bool make_piece(struct cutting *c, __u64 at)
{
	__u32 l3_off = ETH_HLEN + outer_len(c->o.peer),
	      payload = l3_off + c->header;
	__u16 fragment = c->fragment + at / 8;
	__u64 len = c->len - at;

	keep_apart(at);
	if (at >= CUT_MOST)
		return false;
	keep_apart(at);
	if (len > c->most) {
		len = c->most;
		fragment |= IP4_MORE_FRAGMENTS;
	}
	if (!is_to_keep(&len))
		return false;
	c->o.len = c->header + len;
	return !bpf_skb_change_tail(c->skb, payload + len, 0) &&
	       !bpf_skb_store_bytes(c->skb, payload, c->kept->payload + at, len,
				    0) &&
	       write_piece(c->skb, l3_off, c->o.len, fragment) &&
	       write_outer_here(c->skb, &c->o);
}

/* Sends the piece that a packet is, and makes it the next one. */
static long send_piece(__u32 i, void *data)
{
	struct cutting *c = data;

	note_carried(c->pkt, c->skb->len - ETH_HLEN);
	bpf_clone_redirect(c->skb, c->ifindex, 0);
	c->broken = !make_piece(c, (i + 1) * c->most);
	return c->broken;
}

/* Reads what is to be cut, for pieces that get to a peer; false if that makes no sense. */
static __always_inline bool begin_cut(struct cutting *c, const struct peer *p)
{
	__u32 room = most_of(p);

	c->header = c->pkt->l4_off - ETH_HLEN;
	c->len = c->pkt->end - c->pkt->l4_off;
	if (room < c->header + 8)
		return false;
	c->most = (room - c->header) & ~7;
	c->fragment = read_fragment(c->skb, c->pkt);
	return keep_payload(c);
}

/*
 * Carries a packet of IPv4 in pieces, and returns what the program is to return. All but the last
 * one leave before that ends, by the same next hop. Where the kernel has yet to find that out, they
 * are lost, but for the first one. The kernel is not told of the outer header: it would change the
 * length no more.
 */
GLOBAL_FUNC int cut(struct __sk_buff *skb, struct packet *pkt)
{
	struct cutting c = { .skb = skb };
	const struct peer_way *w;
	__u32 zero = 0;
	struct peer *p;
	int verdict;

	if (!pkt || pkt->l3_off != ETH_HLEN)
		return TC_ACT_SHOT;
	c.pkt = pkt;
	p = find_peer(pkt->home);
	c.kept = bpf_map_lookup_elem(&cut_scratch, &zero);
	if (!p || !c.kept || !begin_cut(&c, p))
		return refuse_packet(pkt, DROP_TOO_LONG, 0), TC_ACT_SHOT;
	if (!finish_sum(&c) || !prepare(skb, pkt, p, &c.o, true) ||
	    bpf_skb_adjust_room(skb, outer_len(p), BPF_ADJ_ROOM_MAC, 0) ||
	    !make_piece(&c, 0))
		return refuse_packet(pkt, DROP_CARRIED, 0), TC_ACT_SHOT;
	w = go_by_way(skb, pkt, p, &verdict);
	if (!w)
		return verdict;
	c.ifindex = w->ifindex;
	bpf_loop((c.len - 1) / c.most, send_piece, &c, 0);
	if (c.broken)
		return refuse_packet(pkt, DROP_CARRIED, 0), TC_ACT_SHOT;
	note_carried(pkt, skb->len - ETH_HLEN);
	return bpf_redirect(c.ifindex, 0);
}
