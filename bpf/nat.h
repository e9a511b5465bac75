/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Rewriting: a packet gets the tuple of another flow. This is one of the two
 * places where the families meet.
 *
 * Checksums of the transport header go through the kernel's helpers, since only
 * they know whether a device is still to finish them.
 */
#pragma once

#include "config.h"
#include "plain_nat.h"
#include "sctp.h"
#include "verdict.h"

/* Writes both addresses of the IP header at l3_off, and its checksum. */
static __always_inline bool write_addrs(struct __sk_buff *skb, __u32 l3_off,
					bool ip4, const struct tuple *from,
					const struct tuple *to)
{
	if (!ip4) {
		struct ip_addr both[2] = { to->src, to->dst };

		return !bpf_skb_store_bytes(
			skb, l3_off + offsetof(struct ipv6hdr, saddr), both,
			sizeof(both), 0);
	}
	__be32 both[2] = { to->src.word[3], to->dst.word[3] };

	return !bpf_l3_csum_replace(skb, l3_off + offsetof(struct iphdr, check),
				    0, addr_diff(from, to), 0) &&
	       !bpf_skb_store_bytes(skb, l3_off + offsetof(struct iphdr, saddr),
				    both, sizeof(both), 0);
}

/* Corrects the checksum of a TCP or UDP header for addresses and ports. */
static __always_inline bool fix_l4_csum(struct __sk_buff *skb,
					const struct packet *pkt,
					const struct tuple *to)
{
	bool udp = pkt->l4_proto == IPPROTO_UDP;
	__u32 off = pkt->l4_off + (udp ? UDP_CSUM_OFF : TCP_CSUM_OFF);
	__u64 flags = udp ? BPF_F_MARK_MANGLED_0 : 0;
	__u64 addr_flags = flags | BPF_F_PSEUDO_HDR;

	if (!pkt->ip4)
		addr_flags |= ip6_csum_flag;
	return !bpf_l4_csum_replace(skb, off, 0, addr_diff(&pkt->tuple, to),
				    addr_flags) &&
	       !bpf_l4_csum_replace(skb, off, ports_word(&pkt->tuple),
				    ports_word(to), flags | 4);
}

/* Corrects the checksum of the transport header for addresses and ports. */
static __always_inline bool fix_csum(struct __sk_buff *skb,
				     const struct packet *pkt,
				     const struct tuple *to)
{
	__u32 diff = ports_word(&pkt->tuple) ^ ports_word(to);

	if (pkt->l4_proto != IPPROTO_SCTP)
		return fix_l4_csum(skb, pkt, to);
	/* It goes over no addresses, but over all of the datagram. */
	if (diff && pkt->more_fragments) {
		refuse(DROP_FRAGMENT, 0);
		return false;
	}
	return fix_sctp_csum(skb, pkt, diff);
}

STEP bool rewrite_any(struct __sk_buff *skb, struct packet *pkt,
		      const struct tuple *to)
{
	struct ports ports;

	if (!pkt || !to)
		return false;
	ports.src = to->src_port;
	ports.dst = to->dst_port;
	if (!pkt->fragment) {
		if (!fix_csum(skb, pkt, to))
			return false;
		if (bpf_skb_store_bytes(skb, pkt->l4_off, &ports, sizeof(ports),
					0))
			return false;
	}
	if (!write_addrs(skb, pkt->l3_off, pkt->ip4, &pkt->tuple, to))
		return false;
	note_rewritten(pkt, to);
	return true;
}

/* Gives a packet the tuple of another flow; false if it cannot be done. */
static __always_inline bool rewrite(struct __sk_buff *skb, struct packet *pkt,
				    const struct tuple *to)
{
	return (pkt->plain && rewrite_plain(skb, pkt, to)) ||
	       rewrite_any(skb, pkt, to);
}
