/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Outer headers at TC: what they hold (carry/outer.h) comes before a frame, and off it. */
#pragma once

#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include "../abi/config.h"
#include "../carry/outer.h"
#include "../lib/addr.h"
#include "packet.h"

/* Since Linux 6.3; only where the families differ. */
#define DECAP_L3_IPV4 (1ULL << 7)
#define DECAP_L3_IPV6 (1ULL << 8)

/* DSCP and ECN of the IP header behind an Ethernet header. */
static __always_inline __u8 read_tos(struct __sk_buff *skb, bool ip4)
{
	__be16 *h = (void *)(long)skb->data + ETH_HLEN;
	__u16 first;

	if ((void *)(h + 1) > (void *)(long)skb->data_end)
		return 0;
	first = bpf_ntohs(*h);
	return ip4 ? first : first >> 4;
}

/* Writes the kind of the packet behind an Ethernet header. */
static __always_inline bool write_kind(struct __sk_buff *skb, __u32 l3_off,
				       bool ip4)
{
	__be16 kind = ip4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);

	return !l3_off || !bpf_skb_store_bytes(skb, l3_off - sizeof(kind),
					       &kind, sizeof(kind), 0);
}

/* Brings so many bytes of a frame into reach, or all of it. */
static __always_inline void reach(struct __sk_buff *skb, __u32 most)
{
	if ((void *)(long)skb->data + most > (void *)(long)skb->data_end)
		bpf_skb_pull_data(skb, skb->len < most ? skb->len : most);
}

/* Proves a packet behind an Ethernet header, see prove(). Not inlined, for the stack of callers. */
static __noinline bool prove_here(struct __sk_buff *skb, struct outer *o,
				  bool piece)
{
	reach(skb, ETH_HLEN + sizeof(struct proven6));
	return prove(o, (void *)(long)skb->data + ETH_HLEN,
		     (void *)(long)skb->data_end, piece);
}

/* Writes an outer header behind the Ethernet header, where there is room for it. */
static __always_inline bool write_outer_here(struct __sk_buff *skb,
					     const struct outer *o)
{
	return write_outer((void *)(long)skb->data, (void *)(long)skb->data_end,
			   o);
}

/*
 * May a packet keep the marks of an outer header that was taken off? A large packet that the
 * kernel has merged, or never cut, keeps them, and no program clears them. They say where the
 * inner headers are, which have not moved. So they are right for an outer header of the same kind.
 * Behind another kind, a device cuts the packet wrongly.
 */
static __always_inline bool may_keep_marks(struct __sk_buff *skb,
					   const struct packet *pkt,
					   const struct outer *o)
{
	return !skb->gso_size || (pkt->carried && is_over_udp(o->peer) &&
				  pkt->by_ip4 == is_ip4(&o->peer->theirs));
}

/*
 * Has the kernel read the kind of a packet from its Ethernet header. The first of two VLAN tags
 * goes into the frame. The kernel reads the kind behind it when it removes that tag.
 */
static __always_inline bool renew_kind(struct __sk_buff *skb)
{
	__be16 tag = bpf_htons(ETH_P_8021Q);

	return !bpf_skb_vlan_push(skb, tag, 1) &&
	       !bpf_skb_vlan_push(skb, tag, 1) && !bpf_skb_vlan_pop(skb) &&
	       !bpf_skb_vlan_pop(skb);
}

/*
 * Puts an outer header behind the Ethernet header. Segments that a device is to cut keep their
 * size; where they are too long they may shrink instead.
 */
static __always_inline bool put_outer(struct __sk_buff *skb,
				      const struct packet *pkt,
				      const struct outer *o, bool shrink)
{
	bool ip4 = is_ip4(&o->peer->theirs);
	__u64 flags = shrink ? 0 : BPF_F_ADJ_ROOM_FIXED_GSO;
	__u64 encap = ip4 ? BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 :
			    BPF_F_ADJ_ROOM_ENCAP_L3_IPV6;
	__u32 len = outer_len(o->peer);

	if (is_over_udp(o->peer))
		encap |= BPF_F_ADJ_ROOM_ENCAP_L4_UDP;
	if (!bpf_skb_adjust_room(skb, len, BPF_ADJ_ROOM_MAC, flags | encap))
		return write_outer_here(skb, o);
	return may_keep_marks(skb, pkt, o) &&
	       !bpf_skb_adjust_room(skb, len, BPF_ADJ_ROOM_MAC, flags) &&
	       write_outer_here(skb, o) &&
	       (ip4 == o->inner_ip4 || renew_kind(skb));
}

/*
 * Has an outer header become one of the other family, with so many bytes? Before Linux 6.3
 * none is removed from a packet of the other family. The kernel makes room for the one header in
 * place of the other, whatever is in it; not before segments of datagrams.
 */
static __always_inline bool change_family(struct __sk_buff *skb, bool to_ip4,
					  __u32 *len)
{
	const __u32 more = sizeof(struct ipv6hdr) - sizeof(struct iphdr);
	__be16 kind = to_ip4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);

	if (bpf_skb_change_proto(skb, kind, 0))
		return false;
	*len = to_ip4 ? *len - more : *len + more;
	return true;
}

/* Removes an outer header of so many bytes from the packet at l3_off. */
static __always_inline bool remove_outer(struct __sk_buff *skb, __u32 l3_off,
					 __u32 len, bool outer_ip4,
					 bool inner_ip4)
{
	__u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO;

	if (outer_ip4 != inner_ip4 && !change_family(skb, inner_ip4, &len))
		flags |= inner_ip4 ? DECAP_L3_IPV4 : DECAP_L3_IPV6;
	return !bpf_skb_adjust_room(skb, -(__s32)len, BPF_ADJ_ROOM_MAC,
				    flags) &&
	       (outer_ip4 == inner_ip4 || write_kind(skb, l3_off, inner_ip4));
}
