/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The segments that a client sends are carried, and have to leave room for the outer
 * header. How long they may be it is told once, in the SYN-ACK of the backend, by the
 * option of RFC 9293, 3.7.1. What goes to the client is not carried, and not changed.
 */
#pragma once

#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../carry/outer.h"
#include "../lib/addr.h"
#include "../lib/csum.h"
#include "../lib/verdict.h"
#include "packet.h"
#include "restore.h"

#define TCP_OPTION_END 0
#define TCP_OPTION_NONE 1
#define TCP_OPTION_MSS 2
#define TCP_OPTIONS_LEN 40
#define TCP_LEN_FLAGS_OFF 12

/* What every path takes: no segment gets shorter (RFC 9293; RFC 8200, 5). */
#define LEAST_MSS4 536
#define LEAST_MSS6 1220

/* The walk along the options of a TCP header. */
struct option_walk {
	struct __sk_buff *skb;
	__u32 off;
	__u32 end;
	bool found;
};

static long try_option(__u32 i, void *data)
{
	struct option_walk *w = data;
	__u8 option[2]; /* kind and length */

	if (w->off + sizeof(option) > w->end ||
	    bpf_skb_load_bytes(w->skb, w->off, option, sizeof(option)) ||
	    option[0] == TCP_OPTION_END)
		return 1;
	if (option[0] == TCP_OPTION_NONE) {
		w->off++;
		return 0;
	}
	w->found = option[0] == TCP_OPTION_MSS && option[1] == 4;
	if (w->found || option[1] < sizeof(option))
		return 1;
	w->off += option[1];
	return 0;
}

/* Where in a frame the option stands that says how long segments may be, 0 for nowhere. */
static __always_inline __u32 find_mss(struct __sk_buff *skb,
				      const struct packet *pkt)
{
	struct option_walk w = { .skb = skb };
	__u8 words = 0;

	bpf_skb_load_bytes(skb, pkt->l4_off + TCP_LEN_FLAGS_OFF, &words, 1);
	w.off = pkt->l4_off + sizeof(struct tcphdr);
	w.end = pkt->l4_off + (words >> 4) * 4;
	bpf_loop(TCP_OPTIONS_LEN, try_option, &w, 0);
	return w.found ? w.off + 2 : 0;
}

/* The longest segment that this node can be carried, 0 for any. */
static __always_inline __u32 most_mss(const struct packet *pkt)
{
	__u32 here = HOME_HERE, headers, least;
	struct peer *own = bpf_map_lookup_elem(&peers, &here);

	if (!own || !own->mtu)
		return 0;
	headers = sizeof(struct tcphdr) + outer_len(own) +
		  (pkt->ip4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr));
	least = pkt->ip4 ? LEAST_MSS4 : LEAST_MSS6;
	return own->mtu > headers + least ? own->mtu - headers : least;
}

/* Is a packet the answer of a backend that says how long segments may be? */
static __always_inline bool tells_mss(const struct packet *pkt)
{
	return pkt->rewritten && pkt->tuple.hook == HOOK_OUT &&
	       (pkt->tcp_flags & (TCP_SYN | TCP_ACK)) == (TCP_SYN | TCP_ACK);
}

/* Lowers what a SYN-ACK to a client says, if the packets of that are carried. */
GLOBAL_FUNC int clamp_mss(struct __sk_buff *skb, struct packet *pkt)
{
	const struct frontend *f;
	__be16 was, is;
	__u32 off, most;

	if (!pkt)
		return 0;
	f = frontend_of(&pkt->tuple.src, pkt->tuple.src_port,
			pkt->tuple.protocol);
	most = f && f->flags & FRONTEND_CARRIED ? most_mss(pkt) : 0;
	off = most ? find_mss(skb, pkt) : 0;
	if (!off || bpf_skb_load_bytes(skb, off, &was, sizeof(was)) ||
	    bpf_ntohs(was) <= most)
		return 0;
	is = bpf_htons(most);
	if (bpf_skb_store_bytes(skb, off, &is, sizeof(is), 0))
		return 0;
	if ((off - pkt->l4_off) & 1) { /* it is in two words of the sum */
		was = __builtin_bswap16(was);
		is = __builtin_bswap16(is);
	}
	bpf_l4_csum_replace(skb, pkt->l4_off + TCP_CSUM_OFF, was, is, 2);
	return 0;
}
