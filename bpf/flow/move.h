/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Moves in the flow table: where both sets of a new flow are full, a flow of theirs goes to
 * its second set. Without them the table refuses flows when two of five ways are taken.
 */
#pragma once

#include "../abi/maps.h"
#include "../lib/verdict.h"
#include "state.h"
#include "table.h"
#include "traffic.h"

/* Notes that flows of a set are in their second one, before any can be found there. */
static __always_inline void note_overflow(struct flow_set *s)
{
	if (!(s->overflow & SET_OVERFLOW))
		__sync_fetch_and_or(&s->overflow, SET_OVERFLOW);
}

/*
 * May a flow make room for one that moves? Not the other direction of the new flow, which
 * was added just now.
 */
static __always_inline bool is_half_open_before(__u32 state, __u64 now_ns)
{
	return state & FLOW_HALF_OPEN && flow_idle(state, now_ns) > 1;
}

/*
 * Takes a way of a set that is free, or, with a time, one whose flow was half-open before;
 * its state in *seen, FLOW_WAYS if there is none.
 */
static __always_inline __u32 take_way(struct flow_set *s, __u64 now_ns,
				      __u32 *seen)
{
#pragma unroll
	for (__u32 w = 0; w < FLOW_WAYS; w++) {
		*seen = *(volatile __u32 *)&s->state[w];
		if ((!s->tag[w] ||
		     (now_ns && is_half_open_before(*seen, now_ns))) &&
		    !(*seen & FLOW_BUSY) && own_way(&s->state[w], *seen))
			return w;
	}
	return FLOW_WAYS;
}

/*
 * Takes the copy of a flow back that was about to move. Another CPU may have removed the
 * flow, and a packet may have found the copy since: it goes all the same.
 */
static __always_inline void take_back(struct flow_set *s, __u32 way,
				      __u32 copied)
{
	__u32 state = copied;

	for (int i = 0; i < STATE_TRIES && is_same_flow(state, copied); i++) {
		if (own_way(&s->state[way], state)) {
			s->tag[way] = 0;
			publish(&s->state[way], next_generation(state));
			return;
		}
		state = *(volatile __u32 *)&s->state[way];
	}
}

/*
 * Moves a flow from a way of its first set, which is full, to a free one of its second
 * set, or, with a time, to that of one which was half-open before, and goes. It is there
 * before it is gone here, so that every packet finds it; if it changes meanwhile it
 * stays. A flow that is in its second set does not move.
 */
static __always_inline bool move_way(struct flow_set *s, __u32 index, __u32 way,
				     __u64 now_ns)
{
	__u32 seen = *(volatile __u32 *)&s->state[way], other, free, state;
	struct flow *flow = &s->way[way];
	struct flow_set *to;
	__u64 hash;

	if (!is_used(seen))
		return false;
	hash = flow_hash((const struct tuple *)flow);
	other = second_set(hash);
	to = bpf_map_lookup_elem(&flow_table, &other);
	if (first_set(hash) != index || other == index || !to)
		return false;
	free = take_way(to, now_ns, &state);
	if (free >= FLOW_WAYS)
		return false;
	if (to->tag[free]) {
		flow_uncounted(&to->way[free], state);
		count(flow_expired);
	}
	note_overflow(s);
	move_traffic(place_of(index, way), place_of(other, free));
	to->tag[free] = tag_of(hash);
	to->way[free] = *flow;
	state = (seen & ~FLOW_GENERATIONS) | next_generation(state);
	publish(&to->state[free], state);
	if (!own_way(&s->state[way], seen)) {
		take_back(to, free, state);
		return false;
	}
	s->tag[way] = 0;
	publish(&s->state[way], next_generation(seen));
	return true;
}

/* From a set only one CPU moves at a time: two copies of a flow would both stay. */
static __always_inline bool begin_moving(struct flow_set *s)
{
	__u32 was = *(volatile __u32 *)&s->overflow;

	return !(was & SET_MOVING) &&
	       __sync_val_compare_and_swap(&s->overflow, was,
					   was | SET_MOVING) == was;
}

/*
 * Frees a way of a full set by moving a flow to its other set; false if none can. True
 * also where another CPU is about to.
 */
GLOBAL_FUNC int free_way(__u32 index, __u64 now_ns)
{
	struct flow_set *s = bpf_map_lookup_elem(&flow_table, &index);
	bool moved = false;

	if (!s)
		return false;
	if (!begin_moving(s))
		return true;
#pragma nounroll
	for (__u32 w = 0; w < FLOW_WAYS && !moved; w++)
		moved = move_way(s, index, w, now_ns);
	__sync_fetch_and_and(&s->overflow, ~SET_MOVING);
	return moved;
}

/*
 * Frees a way where one of a full set's flows can move to next: no set that is nearer has
 * any. With one move alone some table in thirty refuses a flow before five of six ways are
 * taken, with two none of 2,000 did before nine of ten.
 */
GLOBAL_FUNC int free_next(__u32 index)
{
	struct flow_set *s = bpf_map_lookup_elem(&flow_table, &index);
	__u32 other;

	if (!s)
		return false;
#pragma nounroll
	for (__u32 w = 0; w < FLOW_WAYS; w++) {
		other = second_set(flow_hash((const struct tuple *)&s->way[w]));
		if (other != index && free_way(other, 0))
			return true;
	}
	return false;
}

/* Makes a free way in one of two full sets; true if it is worth to look again. */
static __always_inline bool make_free(__u32 first, __u32 second)
{
	return free_way(first, 0) || free_way(second, 0) || free_next(first) ||
	       free_next(second);
}

/*
 * The same where nothing in both sets makes room, and no set near them has any: a flow moves
 * in place of one that is half-open.
 */
static __always_inline bool displace_half_open(__u32 first, __u32 second,
					       __u64 now_ns)
{
	return free_way(first, now_ns) || free_way(second, now_ns);
}
