/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Room in the flow table: who makes room for a new flow is decided in its set.
 *
 * It is a free way, else the half-open flow that was noted longest ago, else one that was
 * silent for longer than its kind may be, and last, for TCP, a connection that only seems
 * to have ended: anybody can forge a reset or a FIN. So no number of half-open flows
 * displaces one that both sides have confirmed. Datagrams, of which anybody can forge what
 * confirms them, have a share of the ways: beyond that they are displaced by TCP, and
 * displace only each other.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../lib/addr.h"
#include "../lib/mask.h"
#include "../lib/time.h"
#include "../lib/verdict.h"
#include "flood.h"
#include "move.h"
#include "one_sided.h"
#include "state.h"
#include "table.h"
#include "traffic.h"

/*
 * What follows has no branches: a CPU would predict few of them, and the verifier
 * would go through all their combinations.
 */
static __always_inline __u64 mask_if_flag(__u32 state, __u32 flag)
{
	return mask_if_less(0, state & flag);
}

/*
 * A way with how gladly it makes room: a rank in the upper half, 0 for not at all, then
 * whose turn it is among equals, which way, the first the greatest, and its state.
 */
#define ROOM_RANK_SHIFT 38
#define ROOM_TURN_SHIFT 35
#define ROOM_WAY_SHIFT 32
#define RANK_HALF_OPEN 0x10000 /* and how long it has been idle */
#define RANK_FREE 0x3ffff
#define ROOM_BUSY ((__u64) - 2)
#define ROOM_EXISTS ((__u64) - 1)

static __always_inline __u64 way_with_rank(__u64 rank, __u32 way, __u32 state)
{
	return rank << ROOM_RANK_SHIFT |
	       (__u64)(FLOW_WAYS - way) << ROOM_WAY_SHIFT | state;
}

/* All flows of a moment are equal: they make room by turns, from the next way on. */
static __always_inline __u64 turn_of(__u64 way, __u64 next)
{
	return (next - 1 - way + (FLOW_WAYS & mask_if_less(next, way + 1)))
	       << ROOM_TURN_SHIFT;
}

static __always_inline __u64 room_of(__u32 tag, __u32 state, __u32 way,
				     __u64 now, __u64 too_many, __u64 one_more)
{
	__u64 idle = elapsed_bits(now, state >> FLOW_TIME_SHIFT, 16), limit,
	      rank;
	__u64 datagrams = mask_if_flag(state, FLOW_DATAGRAMS);

	limit = choose(datagrams, flow_times(udp_flow_timeout_s),
		       flow_times(IDLE_ESTABLISHED_S));
	rank = idle & mask_if_less(limit, idle);
	rank = choose(datagrams & too_many, idle + 1, rank);
	rank = choose(mask_if_flag(state, FLOW_HALF_OPEN),
		      RANK_HALF_OPEN + idle, rank);
	rank &= datagrams | ~one_more;
	rank = choose(mask_if_less(0, tag), rank, RANK_FREE);
	return way_with_rank(rank, way, state) & mask_if_less(0, rank);
}

/*
 * Is a way with the tag of a flow that of a key? ROOM_EXISTS, ROOM_BUSY if it is just given to
 * some flow, whose tag is written before the key, or 0. Not inlined, for the stack of the caller.
 */
static __noinline __u64 room_taken(const struct flow_set *s, __u32 way,
				   __u32 state, const struct tuple *t)
{
	bool same = has_key(&s->way[way], t);

	if (*(volatile __u32 *)&s->state[way] != state ||
	    (same && state & FLOW_BUSY))
		return ROOM_BUSY;
	return same ? ROOM_EXISTS : 0;
}

/*
 * Finds a free way, as one mostly is, in the manner of find_room: the usual one of the flow
 * if it can be, 0 if none is.
 */
GLOBAL_FUNC __u64 find_free(const struct tuple *t, __u32 index, __u32 tag)
{
	struct flow_set *s = bpf_map_lookup_elem(&flow_table, &index);
	__u32 usual = usual_way(tag), state, busy = 0;
	__u64 room = 0, best, taken;

	if (!s || !t)
		return 0;
	fetch_line(&s->way[usual]);
	state = *(volatile __u32 *)&s->state[usual];
	best = way_with_rank(RANK_FREE, usual, state) &
	       ~mask_if_less(0, s->tag[usual]);
#pragma unroll
	for (int w = FLOW_WAYS - 1; w >= 0; w--) {
		state = *(volatile __u32 *)&s->state[w];
		busy |= state;
		if (*(volatile __u32 *)&s->tag[w] == tag &&
		    (taken = room_taken(s, w, state, t)))
			return taken;
		room = choose(mask_if_less(0, s->tag[w]), room,
			      way_with_rank(RANK_FREE, w, state));
	}
	if (busy & FLOW_BUSY)
		return ROOM_BUSY;
	return best ?: room;
}

/*
 * Ways of a set that are the share of datagrams. They may have more while these are
 * free, but displace only each other for them, and TCP displaces them.
 */
#define DATAGRAM_WAYS 4

/*
 * Finds room for a flow in a set: the way with the greatest rank, 0 if none makes room.
 * ROOM_EXISTS if the flow is there already, ROOM_BUSY if a way is just being given or
 * freed. One pass decides, so that of two CPUs that begin the same flow both choose the
 * same way, and only one gets it.
 */
GLOBAL_FUNC __u64 find_room(const struct tuple *t, __u32 index, __u32 tag,
			    __u64 now_ns)
{
	struct flow_set *s = bpf_map_lookup_elem(&flow_table, &index);
	__u64 most = 0, room, too_many, one_more, next, taken;
	__u32 state, busy = 0, datagrams = 0;

	if (!s || !t)
		return 0;
	/* Before the states, see take_room. */
	next = *(volatile __u32 *)&s->next & 7;
	for (int w = 0; w < FLOW_WAYS; w++)
		datagrams += s->state[w] / FLOW_DATAGRAMS & 1;
	too_many = mask_if_less(DATAGRAM_WAYS, datagrams);
	one_more = mask_if_less(DATAGRAM_WAYS, datagrams + 1);
	if (t->protocol == IPPROTO_TCP)
		one_more = 0;
	else
		too_many = 0;
#pragma unroll
	for (int w = 0; w < FLOW_WAYS; w++) {
		state = *(volatile __u32 *)&s->state[w];
		busy |= state;
		if (*(volatile __u32 *)&s->tag[w] == tag &&
		    (taken = room_taken(s, w, state, t)))
			return taken;
		room = room_of(s->tag[w], state, w, flow_time(now_ns), too_many,
			       one_more);
		room += turn_of(w, next) & mask_if_less(0, room);
		most = greater(most, room);
	}
	return busy & FLOW_BUSY ? ROOM_BUSY : most;
}

/*
 * Is the way that makes room that of the flow's own other direction? It was added just
 * now, and must not go.
 */
GLOBAL_FUNC int is_own_other(const struct new_flow *n, __u32 index, __u64 room)
{
	struct flow_set *s = bpf_map_lookup_elem(&flow_table, &index);
	__u32 way = FLOW_WAYS - (room >> ROOM_WAY_SHIFT & 7);
	const struct flow *f;

	asm volatile("" : "+r"(way)); /* as in take_room */
	if (!n || !s || !((__u32)room & FLOW_HALF_OPEN) || way >= FLOW_WAYS)
		return false;
	f = &s->way[way];
	return f->src_port == n->becomes.dst_port &&
	       f->dst_port == n->becomes.src_port &&
	       f->hook == other_hook(n->key.hook) &&
	       f->protocol == n->key.protocol &&
	       same_addr(&f->src, &n->becomes.dst) &&
	       same_addr(&f->dst, &n->becomes.src);
}

enum added {
	FLOW_ADDED,
	FLOW_EXISTS,
	FLOW_NO_ROOM,
	FLOW_AGAIN, /* another CPU has changed the set */
};

static __always_inline void write_flow(struct flow *flow,
				       const struct new_flow *n)
{
	__builtin_memcpy(flow, &n->key, sizeof(n->key));
	flow->to = n->key.hook == HOOK_IN ? n->becomes.dst : n->becomes.src;
	flow->to_src_port = n->becomes.src_port;
	flow->to_dst_port = n->becomes.dst_port;
	flow->known = n->added_known;
	flow->checksum = flow_checksum(&flow->to, flow->to_src_port,
				       flow->to_dst_port, tag_of(n->hash));
}

/* Gives a way to a flow, in place of the one that it had. */
static __always_inline enum added take_room(struct new_flow *n, __u32 index,
					    __u64 room)
{
	struct flow_set *s = bpf_map_lookup_elem(&flow_table, &index);
	__u32 way = FLOW_WAYS - (room >> ROOM_WAY_SHIFT & 7), seen = room;

	asm volatile(
		""
		: "+r"(way)); /* so that the verifier sees the comparison */
	if (!s || way >= FLOW_WAYS)
		return FLOW_NO_ROOM;
	if (!own_way(&s->state[way], seen))
		return FLOW_AGAIN;
	if (s->tag[way]) {
		s->next = way + 1; /* who sees this sees that the way is busy */
		flow_uncounted(&s->way[way], seen);
		note_flood(seen, n->now_ns);
		if (seen & FLOW_HALF_OPEN)
			count(flow_expired);
		else
			count(flow_evicted);
	}
	n->added_place = place_of(index, way);
	begin_traffic(n->added_place);
	s->tag[way] = tag_of(n->hash);
	write_flow(&s->way[way], n);
	n->added_state = n->added_flags | next_generation(seen) |
			 flow_time(n->now_ns) << FLOW_TIME_SHIFT;
	publish(&s->state[way], n->added_state);
	return FLOW_ADDED;
}

/* Is one room better than another? Then by its rank. */
static __always_inline bool is_better(__u64 room, __u64 other)
{
	return room >> ROOM_RANK_SHIFT > other >> ROOM_RANK_SHIFT;
}

/*
 * Should a flow of the sets be moved, in place of one that makes room? A handshake that is
 * still young should not make room, unless there are so many that all sets are full.
 */
static __always_inline bool should_move(__u64 room, __u64 now_ns)
{
	__u32 state = room;

	return !room || (state & FLOW_HALF_OPEN && !is_flooded(now_ns) &&
			 flow_idle(state, now_ns) < flow_times(FLOOD_YOUNG_S));
}

/*
 * Makes a free way in one of two sets that have none, if what makes room should stay; true
 * if it is worth to look again.
 */
static __always_inline bool make_room(const struct new_flow *n, __u64 room)
{
	__u32 first = first_set(n->hash), second = second_set(n->hash);

	if (should_move(room, n->now_ns) && make_free(first, second))
		return true;
	return !room && n->key.protocol == IPPROTO_TCP &&
	       (displace_half_open(first, second, n->now_ns) ||
		free_one_sided(first, second, n->now_ns));
}

/* The room for a direction in a set: a free way, else who makes room. */
static __always_inline __u64 room_in(const struct new_flow *n, __u32 index)
{
	return find_free(&n->key, index, tag_of(n->hash)) ?:
		       find_room(&n->key, index, tag_of(n->hash), n->now_ns);
}

/*
 * Tries once to add a direction. The second set has the flow, or room for it, only where
 * the first one has no free way or had none before.
 */
static __always_inline enum added try_add(struct new_flow *n)
{
	__u32 index = first_set(n->hash), other = second_set(n->hash);
	struct flow_set *s;
	__u64 room, second = 0;

	s = bpf_map_lookup_elem(&flow_table, &index);
	if (!s)
		return FLOW_NO_ROOM;
	room = room_in(n, index);
	if (room < ROOM_BUSY &&
	    (s->overflow || room >> ROOM_RANK_SHIFT != RANK_FREE))
		second = room_in(n, other);
	if (room == ROOM_EXISTS || second == ROOM_EXISTS)
		return FLOW_EXISTS;
	if (room == ROOM_BUSY || second == ROOM_BUSY)
		return FLOW_AGAIN;
	if (is_better(second, room)) {
		note_overflow(s);
		index = other;
		room = second;
	}
	if (room >> ROOM_RANK_SHIFT != RANK_FREE) {
		if (is_own_other(n, index, room))
			room = 0;
		if (make_room(n, room))
			return FLOW_AGAIN;
	}
	return room ? take_room(n, index, room) : FLOW_NO_ROOM;
}

/*
 * A set is looked at so often until no way of it is busy, and none moves: mostly it is for
 * 100 ns, and so many looks take some microseconds. An agent or a command that is killed while it
 * frees a way leaves that busy until an agent counts anew, half a minute, or the next one starts:
 * each packet that begins a flow in the set waits in vain until then, twice eight times.
 */
#define BUSY_LOOKS (1 << 10)
#define ADD_TRIES 8

static long is_at_rest(__u32 i, void *data)
{
	struct flow_set *s = bpf_map_lookup_elem(&flow_table, data);
	__u32 busy = 0;

	if (!s)
		return 1;
	for (int w = 0; w < FLOW_WAYS; w++)
		busy |= *(volatile __u32 *)&s->state[w];
	return busy & FLOW_BUSY || s->overflow & SET_MOVING ? 0 : 1;
}

/* Waits for other CPUs, which are about to give or to free ways where a flow may be. */
static __always_inline void wait_for_rest(const struct new_flow *n)
{
	__u32 index = first_set(n->hash);

	bpf_loop(BUSY_LOOKS, is_at_rest, &index, 0);
	index = second_set(n->hash);
	bpf_loop(BUSY_LOOKS, is_at_rest, &index, 0);
}

/*
 * Adds a direction of a flow, unless it is there (FLOW_EXISTS) or no other makes room
 * (FLOW_NO_ROOM). FLOW_AGAIN where other CPUs went on changing the set, or were stopped.
 * The time of the flow is from before its backend was chosen: a removal since is later.
 */
GLOBAL_FUNC int add_flow(struct new_flow *n)
{
	enum added added = FLOW_AGAIN;

	if (!n)
		return FLOW_NO_ROOM;
	if (n->key.protocol != IPPROTO_TCP)
		n->added_flags |= FLOW_DATAGRAMS;
	n->hash = flow_hash(&n->key);
#pragma nounroll
	for (int i = 0; i < ADD_TRIES; i++) {
		added = try_add(n);
		if (added != FLOW_AGAIN)
			break;
		wait_for_rest(n);
	}
	return added;
}
