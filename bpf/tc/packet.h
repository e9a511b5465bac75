/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What a packet is, as far as a Service is concerned, and what becomes of it. What
 * decides has this and no context: which hook has read the packet, and how, is
 * nothing to it.
 */
#pragma once

#include "../abi/flow_types.h"
#include "../lib/addr.h"

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10
#define TCP_ENDS (TCP_SYN | TCP_FIN | TCP_RST) /* of a connection */

/* Where the headers of a packet are, in bytes from its start, and what is in them. */
struct packet {
	__u32 ifindex; /* of the device on which it is seen */
	__u32 l3_off;
	__u32 l4_off;
	__u32 end; /* of the IP packet: frames may be padded */
	bool ip4;
	bool fragment : 1; /* has no ports: not the first of its datagram */
	bool more_fragments : 1;
	bool begun : 1; /* it has begun a flow, which others may have to precede */
	bool by_ip4 : 1; /* a peer has carried it here over IPv4 */
	__u8 l4_words : 4; /* of 4 bytes, in the transport header, if it has one */
	__u16 fragment_off; /* in bytes */
	bool pod;	    /* seen on the device of a pod */
	bool rewritten;	    /* has another tuple now */
	bool plain;	    /* see tc/parse.h */
	__u8 round : 2;	    /* enum ring_round */
	__be32 fragment_id;
	__be32 tcp_seq;
	__be32 tcp_ack;
	__u8 tcp_flags; /* TCP_SYN, …; 0 without a TCP header */
	__u8 l4_proto;
	__u8 hops; /* routers that it may still pass, this node among them */
	bool untracked : 1; /* the kernel does not track its connection */
	bool carried : 1;   /* a peer has carried it here */
	__u8 tried : 4;	    /* homes that it was carried to in vain */
	bool flowless : 1; /* its ends say that it has no flow, see tc/sight.h */
	bool init : 1;	   /* of SCTP: begins an association */
	struct tuple tuple;
	union {
		struct tuple to; /* what it becomes, if it is to be rewritten */
		__u32 home;	 /* where it goes, if it is to be carried */
		__u32 slot;	 /* by which a backend outside is chosen */
	};
} __attribute__((aligned(8))); /* so that it is zeroed in fewer stores */

static __always_inline struct tuple reversed(const struct tuple *t)
{
	return (struct tuple){
		.src = t->dst,
		.dst = t->src,
		.src_port = t->dst_port,
		.dst_port = t->src_port,
		.protocol = t->protocol,
		.hook = t->hook,
	};
}

static __always_inline bool same_tuple(const struct tuple *a,
				       const struct tuple *b)
{
	return same_addr(&a->src, &b->src) && same_addr(&a->dst, &b->dst) &&
	       a->src_port == b->src_port && a->dst_port == b->dst_port &&
	       a->protocol == b->protocol;
}

static __always_inline bool has_ports(__u8 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP ||
	       protocol == IPPROTO_SCTP;
}

/* The shortest header of a protocol with ports, in bytes. */
static __always_inline __u32 l4_header_len(__u8 protocol)
{
	switch (protocol) {
	case IPPROTO_TCP:
		return 20;
	case IPPROTO_SCTP:
		return 12;
	default: /* UDP */
		return 8;
	}
}

/*
 * The payload of a packet in bytes: of a later fragment all that is behind the IP header. None
 * where the packet says that it ends before, as anybody may have it say.
 */
static __always_inline __u32 payload_len(const struct packet *pkt)
{
	__u32 begins = pkt->l4_off + pkt->l4_words * 4;

	return pkt->end > begins ? pkt->end - begins : 0;
}

/*
 * Would a fragment replace a part of the transport header? No stack cuts a header in
 * pieces (RFC 1858, RFC 3128).
 */
static __always_inline bool is_over_header(const struct packet *pkt)
{
	return pkt->fragment &&
	       pkt->fragment_off < l4_header_len(pkt->l4_proto);
}

/*
 * Does a packet go where another went, whatever has become of the flow? What has no
 * ports of its own follows the first of its datagram, and what begins an SCTP
 * association is never fragmented.
 */
static __always_inline bool only_follows(const struct packet *pkt)
{
	return pkt->fragment ||
	       (pkt->l4_proto == IPPROTO_SCTP && pkt->more_fragments);
}

/* Does the packet begin a connection? Datagrams may always begin one. */
static __always_inline bool may_begin(const struct packet *pkt)
{
	if (only_follows(pkt))
		return false;
	switch (pkt->l4_proto) {
	case IPPROTO_TCP:
		return (pkt->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
	case IPPROTO_SCTP:
		return pkt->init;
	default:
		return true;
	}
}
