/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Homes: where do the backends of a slot run, and who is asked next for a connection
 * that this node does not know?
 *
 * A connection lives at the home of the backend that its slot named when it began. As long
 * as the Service has that backend it is one of the owners of the slot: what it names now,
 * or what it named before. Nodes learn of changes at different times, so their lists of
 * owners differ, and so does what an index into them means. Therefore the homes of the
 * owners are a ring, by a number that each has on all nodes, and a packet goes on to the
 * next one above the node where it is: whatever each on the way knows, every home that
 * any of them knows is asked once.
 *
 * From a node that is dead a packet does not come back, and what lives behind it in the ring
 * would not be found. So homes that are silent are left out at first, as if they had been asked,
 * and the packet says so: what only one node takes for silent may live. If nobody else knows the
 * connection, it goes around once more, and nobody is left out.
 */
#pragma once

#include "../abi/maps.h"
#include "../lb/table.h"
#include "../lib/unknown.h"

#define OWNERS (1 + FORMER_OWNERS)

/* The home of a backend by its ID, enum home. */
static __always_inline __u32 home_of(__u32 backend_id)
{
	struct backend *b = bpf_map_lookup_elem(&backends, &backend_id);

	return b ? b->home : HOME_UNKNOWN;
}

/* The peer with an ID; NULL if it is this node, or none. */
static __always_inline struct peer *find_peer(__u32 home)
{
	return home >= FIRST_PEER ? bpf_map_lookup_elem(&peers, &home) : NULL;
}

/* May what begins be carried to a home? */
static __always_inline bool is_usable(__u32 home)
{
	struct peer *p = find_peer(home);

	return p && p->flags & PEER_USABLE;
}

/* Is a home a backend outside, which passes on nothing? */
static __always_inline bool is_outside(__u32 home)
{
	struct peer *p = find_peer(home);

	return p && p->flags & PEER_OUTSIDE;
}

/*
 * What a slot named before; NULL if it has never changed, or has since become another's. The
 * agent writes it before the slot, which names meanwhile what it is about to have named.
 */
static __always_inline const struct slot_change *change_of(__u32 slot)
{
	struct slot_change *change = bpf_map_lookup_elem(&slot_changes, &slot);
	__u32 now = slot_at(slot);

	if (change && (change->to == now || change->was[0] == now))
		return change;
	return NULL;
}

/* Who of the homes on other nodes is asked next? */
struct ring {
	__u32 next;   /* ID of that peer, 0: there is none */
	__u32 others; /* how many there are */
	__u32 passed; /* those that are left out before the next one */
};

struct ring_search {
	__u64 own;  /* where this node stands */
	__u64 best; /* how far above it is the next one */
	enum peer_flag leaves_out;
	struct ring ring;
	__u32 owner[OWNERS]; /* backend IDs, in place of which their homes come */
};

/*
 * Takes the home of an owner into account, if that is another node. Whether there is a next one
 * already must not be asked: the verifier of Linux 6.1 sees the first owner alone, and takes away
 * what only a later one does.
 */
static long try_owner(__u32 i, void *data)
{
	struct ring_search *s = data;
	struct peer *p;
	__u64 above;
	__u32 home;

	if (i >= OWNERS || !s->owner[i])
		return 1;
	home = home_of(s->owner[i]);
	s->owner[i] = home;
	p = find_peer(home);
	if (!p || p->flags & PEER_OUTSIDE)
		return 0;
	for (__u32 k = 0; k < OWNERS; k++)
		if (k < i && s->owner[k] == home) {
			s->owner[i] = HOME_HERE; /* it has more than one */
			return 0;
		}
	s->ring.others++;
	if (p->flags & s->leaves_out)
		return 0;
	above = p->ring - s->own; /* around the ring: modulo 2^64 */
	if (above < s->best) {
		s->best = above;
		s->ring.next = home;
	}
	return 0;
}

/* Counts a home that is left out, and stands before the next one. */
static long pass_home(__u32 i, void *data)
{
	struct ring_search *s = data;
	struct peer *p;

	if (i >= OWNERS)
		return 1;
	p = find_peer(s->owner[i]);
	if (p && !(p->flags & PEER_OUTSIDE) && p->flags & s->leaves_out &&
	    p->ring - s->own < s->best)
		s->ring.passed++;
	return 0;
}

/*
 * Looks who is asked next for a connection of a slot, but for peers with a flag. Not inlined,
 * for the stack of the caller.
 */
static __noinline int look_around(__u32 slot, enum peer_flag leaves_out,
				  struct ring *ring)
{
	__u32 here = HOME_HERE;
	struct peer *own = bpf_map_lookup_elem(&peers, &here);
	const struct slot_change *change = change_of(slot);
	struct ring_search s = { .own = own ? own->ring : 0,
				 .best = ~0ULL,
				 .leaves_out = leaves_out };

	s.ring.others = s.ring.passed = unknown_zero(slot);
	s.owner[0] = slot_at(slot);
	if (change)
		__builtin_memcpy(&s.owner[1], change->was, sizeof(change->was));
	bpf_loop(OWNERS, try_owner, &s, 0);
	if (leaves_out)
		bpf_loop(OWNERS, pass_home, &s, 0);
	*ring = s.ring;
	return 0;
}
