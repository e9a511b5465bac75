/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * ICMP errors carry the packet that failed. One rule translates them at every
 * hook: turned round, the inner packet is one of a flow; what the flow becomes,
 * turned round again, is the inner packet that the sender knows.
 *
 * On its way out an error gets the destination of that packet as its source, whichever
 * router sent it: the reverse-path filters of others would drop an address from inside.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../flow/table.h"
#include "../lib/addr.h"
#include "../lib/csum.h"
#include "../lib/verdict.h"
#include "first_reply.h"
#include "kept.h"
#include "nat.h"
#include "noted.h"
#include "packet.h"
#include "parse.h"

#define ICMP_HEADER_LEN 8 /* of ICMPv6, too */
#define ICMP_DEST_UNREACH 3
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETERPROB 12
#define ICMP_FRAG_NEEDED 4
#define ICMP6_DEST_UNREACH 1
#define ICMP6_LAST_ERROR 127

static __always_inline bool is_icmp_error(struct __sk_buff *skb,
					  const struct packet *pkt)
{
	__u8 type;

	if (pkt->fragment ||
	    bpf_skb_load_bytes(skb, pkt->l4_off, &type, sizeof(type)))
		return false;
	if (pkt->ip4 && pkt->l4_proto == IPPROTO_ICMP)
		return type == ICMP_DEST_UNREACH ||
		       type == ICMP_TIME_EXCEEDED || type == ICMP_PARAMETERPROB;
	return !pkt->ip4 && pkt->l4_proto == IPPROTO_ICMPV6 &&
	       type <= ICMP6_LAST_ERROR;
}

/* Reads the packet inside an ICMP error, up to its ports. */
static __always_inline bool parse_inner(struct __sk_buff *skb,
					const struct packet *outer,
					struct packet *inner)
{
	__u32 off = outer->l4_off + ICMP_HEADER_LEN;

	inner->tuple.hook = outer->tuple.hook;
	if (!parse(skb, inner, off,
		   outer->ip4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6)))
		return false;
	return has_ports(inner->l4_proto) && !inner->fragment &&
	       parse_ports(skb, inner);
}

/*
 * Corrects the transport checksum of the inner packet, if that is quoted so
 * far, and returns what that adds to the sum of the ICMP message.
 */
GLOBAL_FUNC __u32 fix_quoted_csum(struct __sk_buff *skb,
				  const struct packet *inner)
{
	__u32 off, from, diff;
	__u16 csum;

	if (!inner)
		return 0;
	off = inner->l4_off;
	if (inner->l4_proto == IPPROTO_SCTP) {
		if (inner->more_fragments ||
		    inner->end < off + SCTP_HEADER_LEN ||
		    bpf_skb_load_bytes(skb, off + SCTP_CSUM_OFF, &from,
				       sizeof(from)))
			return 0;
		diff = ports_word(&inner->tuple) ^ ports_word(&inner->to);
		diff = sctp_csum(from, diff, inner->end - off);
		bpf_skb_store_bytes(skb, off + SCTP_CSUM_OFF, &diff,
				    sizeof(diff), 0);
		return sum_replace(0, from, diff);
	}
	off += inner->l4_proto == IPPROTO_UDP ? UDP_CSUM_OFF : TCP_CSUM_OFF;
	if (bpf_skb_load_bytes(skb, off, &csum, sizeof(csum)))
		return 0;
	from = csum;
	csum = l4_csum(csum, &inner->tuple, &inner->to);
	bpf_skb_store_bytes(skb, off, &csum, sizeof(csum), 0);
	return sum_replace(0, from, csum);
}

/*
 * Corrects the checksum of the ICMP header for what changes in and around it,
 * of which the quoted checksum adds diff.
 */
static __always_inline bool fix_icmp_csum(struct __sk_buff *skb,
					  const struct packet *outer,
					  const struct packet *inner,
					  __u32 diff)
{
	__u32 off = outer->l4_off + ICMP_CSUM_OFF;

	diff = sum_replace(diff, ports_word(&inner->tuple),
			   ports_word(&inner->to));
	if (outer->ip4) /* the inner header checksum makes up for its addresses */
		return !bpf_l4_csum_replace(skb, off, 0, diff, 0);
	diff = sum_add(diff, addr_diff(&inner->tuple, &inner->to));
	return !bpf_l4_csum_replace(skb, off, 0, diff, 0) &&
	       !bpf_l4_csum_replace(skb, off, 0,
				    addr_diff(&outer->tuple, &outer->to),
				    BPF_F_PSEUDO_HDR | ip6_csum_flag);
}

/*
 * Notes that a packet of a flow did not reach anybody, if an error says so rather
 * than how it could. Returns enum noted. Not inlined, for it would take of the caller's stack.
 */
static __noinline int note_error(struct __sk_buff *skb, __u32 icmp_off,
				 bool ip4, const struct tuple *key,
				 const struct found *f)
{
	__u8 type_code[2];

	if (bpf_skb_load_bytes(skb, icmp_off, type_code, sizeof(type_code)))
		return 0;
	if (ip4 ? type_code[0] == ICMP_DEST_UNREACH &&
			    type_code[1] != ICMP_FRAG_NEEDED :
		  type_code[0] == ICMP6_DEST_UNREACH)
		return note_unreachable(key, f);
	return 0;
}

/* Gives an error and the packet inside what a flow, that packet's, says. */
static __noinline int rewrite_error(struct __sk_buff *skb, struct packet *outer,
				    struct packet *inner,
				    const struct tuple *to)
{
	__u32 diff;

	inner->to = reversed(to);
	outer->to = outer->tuple;
	outer->to.dst = to->dst;
	if (outer->tuple.hook == HOOK_OUT ||
	    same_addr(&outer->tuple.src, &inner->tuple.dst))
		outer->to.src = to->src;
	diff = fix_quoted_csum(skb, inner);
	if (!fix_icmp_csum(skb, outer, inner, diff) ||
	    bpf_skb_store_bytes(skb, inner->l4_off, &inner->to.src_port,
				sizeof(struct ports), 0) ||
	    !write_addrs(skb, inner, 0) || !write_addrs(skb, outer, 0))
		return VERDICT_REFUSE;
	note_rewritten(outer);
	count(flow_error);
	return VERDICT_PASS;
}

/*
 * May another node know the flow of the packet in an error, given the tuple that this has
 * turned round? Then that becomes the error's own, and says where that goes.
 */
static __always_inline int ask_others(struct packet *outer,
				      const struct tuple *to)
{
	if (!carrying || outer->tuple.hook != HOOK_IN ||
	    !same_addr(&outer->tuple.dst, &to->dst))
		return VERDICT_PASS;
	outer->tuple = *to;
	return VERDICT_ABOUT;
}

GLOBAL_FUNC int translate_error(struct __sk_buff *skb, struct packet *outer)
{
	struct packet inner = {};
	struct tuple to;
	struct found f;
	__u32 noted, tag;

	if (!outer || !parse_inner(skb, outer, &inner))
		return VERDICT_PASS;
	to = reversed(&inner.tuple);
	if (!find_flow(&to, &f) || is_kept(f.seen))
		return ask_others(outer, &to);
	noted = note_error(skb, outer->l4_off, outer->ip4, &to, &f);
	if (noted)
		count_noted(&f, noted);
	tag = tag_of(flow_hash(&to));
	if (!becomes(&to, f.flow, tag))
		return VERDICT_PASS;
	return rewrite_error(skb, outer, &inner, &to);
}
