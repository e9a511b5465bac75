/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Reading packets. This is one of the two places where the families meet: here
 * headers are read, in tc/nat.h written.
 *
 * Nearly all packets are plain: TCP or UDP in an IP header without options or
 * extensions, no fragments, all headers in memory that a program may read. They are
 * read and written where they lie, since calls are what costs: the functions for all
 * the others take a dozen.
 */
#pragma once

#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include "../abi/config.h"
#include "../lib/addr.h"
#include "../lib/verdict.h"
#include "packet.h"

#define IP4_FRAGMENT_OFFSET 0x1fff
#define IP4_MORE_FRAGMENTS 0x2000
#define IP4_DONT_FRAGMENT 0x4000
#define IP6_MAX_HEADERS 6
#define TCP_SEQ_OFF 4
#define TCP_LEN_OFF 12
#define TCP_FLAGS_OFF 13
#define SCTP_TAG_OFF 4

static __always_inline struct ip_addr from_ip6(const struct in6_addr *a)
{
	return (struct ip_addr){
		.word = { a->in6_u.u6_addr32[0], a->in6_u.u6_addr32[1],
			  a->in6_u.u6_addr32[2], a->in6_u.u6_addr32[3] },
	};
}

/* Reads the IPv4 header at l3_off; false if there is none. */
static __always_inline bool parse_ip4(struct __sk_buff *skb, struct packet *pkt,
				      __u32 l3_off)
{
	struct iphdr ip;

	if (bpf_skb_load_bytes(skb, l3_off, &ip, sizeof(ip)) || ip.ihl < 5)
		return false;
	pkt->ip4 = true;
	pkt->l3_off = l3_off;
	pkt->l4_off = l3_off + ip.ihl * 4;
	pkt->end = ip.tot_len ? l3_off + bpf_ntohs(ip.tot_len) : skb->len;
	pkt->l4_proto = ip.protocol;
	pkt->hops = ip.ttl;
	pkt->fragment_off = (bpf_ntohs(ip.frag_off) & IP4_FRAGMENT_OFFSET) * 8;
	pkt->fragment = pkt->fragment_off;
	pkt->more_fragments = ip.frag_off & bpf_htons(IP4_MORE_FRAGMENTS);
	pkt->fragment_id = ip.id;
	pkt->tuple.src = from_ip4(ip.saddr);
	pkt->tuple.dst = from_ip4(ip.daddr);
	pkt->tuple.protocol = ip.protocol;
	return true;
}

/* The walk along the headers of an IPv6 packet. */
struct ip6_walk {
	struct __sk_buff *skb;
	struct packet *pkt;
	__u32 off;
	__u8 next; /* kind of the header at off */
	bool ok;
};

static __always_inline bool is_ip6_extension(__u8 next)
{
	return next == IPPROTO_HOPOPTS || next == IPPROTO_ROUTING ||
	       next == IPPROTO_DSTOPTS || next == IPPROTO_FRAGMENT ||
	       next == IPPROTO_AH;
}

/* One step of the walk; 1 ends it. A callback, so that it is verified once. */
static long skip_ip6_extension(__u32 i, void *data)
{
	struct ip6_walk *walk = data;
	struct packet *pkt = walk->pkt;
	/* Of every extension header the first bytes are the same. */
	struct {
		__u8 next;
		__u8 len;
		__be16 offset_flags; /* of a fragment header */
		__be32 id;
	} ext;

	if (!is_ip6_extension(walk->next)) {
		walk->ok = true;
		return 1;
	}
	if (bpf_skb_load_bytes(walk->skb, walk->off, &ext, sizeof(ext)))
		return 1;
	if (walk->next == IPPROTO_FRAGMENT) {
		pkt->fragment_off = bpf_ntohs(ext.offset_flags) & 0xfff8;
		pkt->fragment = pkt->fragment_off;
		pkt->more_fragments = ext.offset_flags & bpf_htons(1);
		pkt->fragment_id = ext.id;
		walk->off += 8;
		if (pkt->fragment) { /* no header follows, but data */
			walk->next = ext.next;
			walk->ok = true;
			return 1;
		}
	} else if (walk->next == IPPROTO_AH) {
		walk->off += (ext.len + 2) * 4;
	} else {
		walk->off += (ext.len + 1) * 8;
	}
	walk->next = ext.next;
	return 0;
}

/*
 * Reads the IPv6 header at l3_off and those that follow it, up to the one that
 * has ports; false if there is none or too many, or if an address looks like
 * one of IPv4, which no network carries.
 */
static __always_inline bool parse_ip6(struct __sk_buff *skb, struct packet *pkt,
				      __u32 l3_off)
{
	struct ip6_walk walk = { .skb = skb, .pkt = pkt };
	struct ipv6hdr ip;

	if (bpf_skb_load_bytes(skb, l3_off, &ip, sizeof(ip)))
		return false;
	pkt->ip4 = false;
	pkt->l3_off = l3_off;
	pkt->hops = ip.hop_limit;
	pkt->tuple.src = from_ip6(&ip.saddr);
	pkt->tuple.dst = from_ip6(&ip.daddr);
	if (is_ip4(&pkt->tuple.src) || is_ip4(&pkt->tuple.dst))
		return false;
	walk.off = l3_off + sizeof(ip);
	pkt->end = ip.payload_len ? walk.off + bpf_ntohs(ip.payload_len) :
				    skb->len;
	walk.next = ip.nexthdr;
	if (is_ip6_extension(walk.next))
		bpf_loop(IP6_MAX_HEADERS, skip_ip6_extension, &walk, 0);
	else
		walk.ok = true;
	pkt->l4_off = walk.off;
	pkt->l4_proto = walk.next;
	pkt->tuple.protocol = walk.next;
	return walk.ok;
}

/*
 * Reads the headers of a packet of a kind that Ethernet has a number for; false if
 * it is none of ours.
 */
GLOBAL_FUNC bool parse(struct __sk_buff *skb, struct packet *pkt, __u32 l3_off,
		       __u32 kind)
{
	if (!pkt)
		return false;
	if (kind == bpf_htons(ETH_P_IP))
		return parse_ip4(skb, pkt, l3_off);
	if (kind == bpf_htons(ETH_P_IPV6))
		return parse_ip6(skb, pkt, l3_off);
	return false;
}

/* Reads the ports at l4_off, of a packet that has some. */
static __always_inline bool parse_ports(struct __sk_buff *skb,
					struct packet *pkt)
{
	struct ports ports;

	if (bpf_skb_load_bytes(skb, pkt->l4_off, &ports, sizeof(ports)))
		return false;
	pkt->tuple.src_port = ports.src;
	pkt->tuple.dst_port = ports.dst;
	return true;
}

/* Reads what matters of a TCP header behind the ports. */
static __always_inline bool parse_tcp(struct __sk_buff *skb, struct packet *pkt)
{
	struct {
		__be32 seq;
		__be32 ack;
		__u8 len;
		__u8 flags;
		__be16 window;
	} tcp;

	if (bpf_skb_load_bytes(skb, pkt->l4_off + TCP_SEQ_OFF, &tcp,
			       sizeof(tcp)))
		return false;
	pkt->tcp_seq = tcp.seq;
	pkt->tcp_ack = tcp.ack;
	pkt->tcp_flags = tcp.flags;
	pkt->l4_words = tcp.len >> 4;
	return true;
}

/* Only what begins an SCTP association, an INIT, has no verification tag (RFC 9260, 8.5.1). */
static __always_inline bool parse_sctp(struct __sk_buff *skb,
				       struct packet *pkt)
{
	__be32 tag;

	if (bpf_skb_load_bytes(skb, pkt->l4_off + SCTP_TAG_OFF, &tag,
			       sizeof(tag)))
		return false;
	pkt->init = !tag;
	return true;
}

#define VLAN_TAGS 2

/* The kind of a packet behind its VLAN tags, and where that begins. */
static __always_inline __u32 skip_vlan_tags(struct __sk_buff *skb,
					    __u32 *l3_off)
{
	__u32 kind = skb->protocol;
	struct {
		__be16 tag;
		__be16 kind;
	} vlan;

	for (int i = 0; i < VLAN_TAGS; i++) {
		if (kind != bpf_htons(ETH_P_8021Q) &&
		    kind != bpf_htons(ETH_P_8021AD))
			break;
		if (bpf_skb_load_bytes(skb, *l3_off, &vlan, sizeof(vlan)))
			break;
		*l3_off += sizeof(vlan);
		kind = vlan.kind;
	}
	return kind;
}

struct plain_ip4 {
	struct iphdr ip;
	struct ports ports;
};

struct plain_ip6 {
	struct ipv6hdr ip;
	struct ports ports;
};

/* Has an IPv4 header no options, and is its packet no fragment? */
static __always_inline bool is_whole4(const struct iphdr *ip)
{
	return ip->ihl == 5 && !(ip->frag_off & bpf_htons(IP4_FRAGMENT_OFFSET |
							  IP4_MORE_FRAGMENTS));
}

/* Fills in what stands in a transport header in memory; false if it is short. */
static __always_inline bool read_l4(struct packet *pkt, const void *l4,
				    const void *data_end, __u32 frame_end)
{
	const struct tcphdr *tcp = l4;

	pkt->plain = pkt->end <= frame_end;
	if (pkt->tuple.protocol == IPPROTO_UDP) {
		pkt->l4_words = sizeof(struct udphdr) / 4;
		return pkt->plain &&
		       pkt->l4_off + sizeof(struct udphdr) <= pkt->end;
	}
	if (pkt->tuple.protocol != IPPROTO_TCP || (void *)(tcp + 1) > data_end)
		return false;
	pkt->tcp_flags = ((const __u8 *)l4)[TCP_FLAGS_OFF];
	if (count_traffic)
		pkt->l4_words = ((const __u8 *)l4)[TCP_LEN_OFF] >> 4;
	pkt->tcp_seq = tcp->seq;
	pkt->tcp_ack = tcp->ack_seq;
	return pkt->plain && pkt->l4_off + sizeof(*tcp) <= pkt->end;
}

static __always_inline bool read_plain4(void *data, void *data_end,
					struct packet *pkt, __u32 l3_off)
{
	struct plain_ip4 *h = data + l3_off;
	__u32 frame_end = pkt->end;

	/* The UDP header, which is the shorter one, goes on behind the ports. */
	if ((void *)(h + 1) + sizeof(struct ports) > data_end ||
	    !is_whole4(&h->ip))
		return false;
	pkt->ip4 = true;
	pkt->l4_off = l3_off + sizeof(h->ip);
	pkt->end = l3_off + bpf_ntohs(h->ip.tot_len);
	pkt->hops = h->ip.ttl;
	pkt->tuple.src = from_ip4(h->ip.saddr);
	pkt->tuple.dst = from_ip4(h->ip.daddr);
	pkt->tuple.src_port = h->ports.src;
	pkt->tuple.dst_port = h->ports.dst;
	pkt->tuple.protocol = h->ip.protocol;
	return read_l4(pkt, &h->ports, data_end, frame_end);
}

static __always_inline bool read_plain6(void *data, void *data_end,
					struct packet *pkt, __u32 l3_off)
{
	struct plain_ip6 *h = data + l3_off;
	__u32 frame_end = pkt->end;

	if ((void *)(h + 1) + sizeof(struct ports) > data_end)
		return false;
	pkt->tuple.src = from_ip6(&h->ip.saddr);
	pkt->tuple.dst = from_ip6(&h->ip.daddr);
	if (is_ip4(&pkt->tuple.src) || is_ip4(&pkt->tuple.dst))
		return false;
	pkt->ip4 = false;
	pkt->l4_off = l3_off + sizeof(h->ip);
	pkt->end = pkt->l4_off + bpf_ntohs(h->ip.payload_len);
	pkt->hops = h->ip.hop_limit;
	pkt->tuple.src_port = h->ports.src;
	pkt->tuple.dst_port = h->ports.dst;
	pkt->tuple.protocol = h->ip.nexthdr;
	return read_l4(pkt, &h->ports, data_end, frame_end);
}

/*
 * Reads a plain packet of a kind that Ethernet has a number for, with its ports, given the
 * bytes in memory and where its frame ends, as pkt->end. If it is none, this is false,
 * and all that was written is to be written anew.
 */
static __always_inline bool read_plain(void *data, void *data_end, __u32 kind,
				       struct packet *pkt, __u32 l3_off)
{
	bool plain = false;

	if (kind == bpf_htons(ETH_P_IP))
		plain = read_plain4(data, data_end, pkt, l3_off);
	else if (kind == bpf_htons(ETH_P_IPV6))
		plain = read_plain6(data, data_end, pkt, l3_off);
	pkt->l3_off = l3_off;
	pkt->l4_proto = pkt->tuple.protocol;
	pkt->plain = plain;
	if (!plain) {
		pkt->tcp_flags = pkt->l4_words = 0;
		pkt->tuple.src_port = pkt->tuple.dst_port = 0;
	}
	return plain;
}

/*
 * Has read_plain read what there is to read of a packet though it is not plain? One within an IP
 * header without options or extensions has no ports.
 */
static __always_inline bool is_read(const struct packet *pkt)
{
	return (pkt->l4_proto == IPPROTO_IPIP ||
		pkt->l4_proto == IPPROTO_IPV6) &&
	       pkt->end > pkt->l4_off;
}
