/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What express entries say is repeated, of plain packets within a connection. SYN, FIN and
 * RST end what an entry says: they are what the state of a flow lives on.
 */
#pragma once

#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include "../abi/maps.h"
#include "../flow/express.h"
#include "../lib/csum.h"
#include "../lib/filter.h"
#include "../lib/verdict.h"
#include "../tc/packet.h"
#include "../tc/parse.h"

/* The length of a frame, in bytes, of which the first buffer has some. */
static __always_inline __u32 frame_len(struct xdp_md *ctx,
				       const struct packet *pkt)
{
	__u32 len = (void *)(long)ctx->data_end - (void *)(long)ctx->data;

	return pkt->end > len ? bpf_xdp_get_buff_len(ctx) : len;
}

/*
 * Is all of the IP packet there, in a frame that is no longer than so many bytes, without its
 * Ethernet header, and that a device can send? It may be in more than one buffer, of which some
 * devices take only one of another device.
 */
static __always_inline bool fits(struct xdp_md *ctx, const struct packet *pkt,
				 __u32 ifindex, __u32 most)
{
	__u32 len = frame_len(ctx, pkt),
	      first = (void *)(long)ctx->data_end - (void *)(long)ctx->data;

	return pkt->end <= len && len - ETH_HLEN <= most &&
	       (pkt->end <= first || ifindex == ctx->ingress_ifindex);
}

/* Sends a frame by a device; what came by one of them is returned. */
static __always_inline int send_by(struct xdp_md *ctx, __u32 ifindex,
				   __u32 turns_at)
{
	if (turns_at == ctx->ingress_ifindex)
		return XDP_TX;
	return bpf_redirect(ifindex, 0);
}

/* A checksum after a difference. */
static __always_inline __u16 changed(__u16 csum, __u32 diff)
{
	return ~sum_fold(sum_add((__u16)~csum, diff));
}

/* Writes the ports and the transport checksum; that of UDP may be none (RFC 768). */
static __always_inline bool write_ports(void *ports, void *data_end,
					const struct packet *pkt,
					const struct express *e)
{
	bool udp = pkt->l4_proto == IPPROTO_UDP;
	__u16 *csum = ports + (udp ? UDP_CSUM_OFF : TCP_CSUM_OFF);
	__u32 word = ports_word(&e->leaves);

	if ((void *)(csum + 1) > data_end)
		return false;
	__builtin_memcpy(ports, &word, sizeof(word));
	if (udp && !*csum)
		return true;
	*csum = changed(*csum, e->l4_diff);
	if (udp && !*csum)
		*csum = 0xffff;
	return true;
}

/* Takes a hop off an IPv4 header, to which a difference is added besides. */
static __always_inline void pass_hop4(struct iphdr *ip, __u32 diff)
{
	__u16 *word = (void *)&ip->ttl, was = *word; /* with the protocol */

	ip->ttl--;
	ip->check = changed(ip->check, sum_replace(diff, was, *word));
}

/* Writes the IP header of a packet that passes a router: its addresses, and a hop less. */
static __always_inline void write_ip4(struct iphdr *ip, const struct express *e)
{
	ip->saddr = e->leaves.src.word[3];
	ip->daddr = e->leaves.dst.word[3];
	pass_hop4(ip, e->ip_diff);
}

static __always_inline void write_ip6(struct ipv6hdr *ip,
				      const struct express *e)
{
	ip->hop_limit--;
	__builtin_memcpy(&ip->saddr, &e->leaves.src, sizeof(ip->saddr));
	__builtin_memcpy(&ip->daddr, &e->leaves.dst, sizeof(ip->daddr));
}

/* Makes a plain packet what its flow leaves as; false if nothing was written. */
static __always_inline bool rewrite_here(void *data, void *data_end,
					 const struct packet *pkt,
					 const struct express *e)
{
	struct plain_ip4 *h4 = data + ETH_HLEN;
	struct plain_ip6 *h6 = data + ETH_HLEN;

	if (pkt->ip4) {
		if ((void *)(h4 + 1) > data_end ||
		    !write_ports(&h4->ports, data_end, pkt, e))
			return false;
		write_ip4(&h4->ip, e);
	} else {
		if ((void *)(h6 + 1) > data_end ||
		    !write_ports(&h6->ports, data_end, pkt, e))
			return false;
		write_ip6(&h6->ip, e);
	}
	__builtin_memcpy(data, e->macs, sizeof(e->macs));
	return true;
}

/*
 * Makes a packet that may be of a flow what TC made of the one before it, and returns the
 * entry that said so; NULL: it is as it was.
 */
static __always_inline const struct express *
make_repeated(struct xdp_md *ctx, const struct packet *pkt)
{
	const struct express *e =
		express_to_repeat(&pkt->tuple, pkt->tcp_flags & TCP_ENDS);

	if (!e || !fits(ctx, pkt, e->ifindex, e->mtu) ||
	    !rewrite_here((void *)(long)ctx->data, (void *)(long)ctx->data_end,
			  pkt, e))
		return NULL;
	return e;
}

/* Sends a packet that may be of a flow as TC has sent the one before it, or passes it on. */
static __always_inline int repeat(struct xdp_md *ctx, const struct packet *pkt)
{
	const struct express *e = make_repeated(ctx, pkt);

	if (!e)
		return XDP_PASS;
	count_repeated(e, payload_len(pkt));
	return send_by(ctx, e->ifindex, e->turns_at);
}
