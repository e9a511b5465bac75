/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * VLAN tags in the frame. Mostly the kernel has taken the tag out before a program
 * sees the packet; it leaves the inner one of two.
 */
#pragma once

#include "packet.h"

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
