/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * By which next hop is a peer reached? The kernel says so, and to ask it takes as long as all
 * else that is done to a packet where it comes in. So what it said is kept, as express entries are:
 * by each CPU, for a second at the most, and until the agent takes something away. TC asks, and
 * drivers go by what it has noted.
 */
#pragma once

#include <linux/if_ether.h>

#include "../abi/maps.h"
#include "../flow/express.h"

/* Where the way to a peer stands that packets take which come by a device. */
static __always_inline struct peer_way *way_place(__u32 peer, __u32 came_by)
{
	struct peer_ways *w = bpf_map_lookup_elem(&peer_ways, &peer);

	return w ? &w->way[came_by % PEER_WAYS] : NULL;
}

/* The way to a peer for a packet that came by a device; NULL: the kernel is to be asked. */
static __always_inline const struct peer_way *known_way(__u32 peer,
							__u32 came_by)
{
	struct peer_way *w = way_place(peer, came_by);

	return w && w->mtu && w->came_by == came_by &&
			       holds(w->epoch, w->noted) ?
		       w :
		       NULL;
}

/* Writes the addresses of a frame that goes by a way; there must be an Ethernet header. */
static __always_inline void write_way(void *frame, const struct peer_way *w)
{
	__u32 *macs = frame;

	for (int i = 0; i < (int)(sizeof(w->macs) / sizeof(w->macs[0])); i++)
		macs[i] = w->macs[i];
}
