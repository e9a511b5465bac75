/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * States of flows: one word each, which changes by compare-and-swap only. Whoever makes a
 * way busy owns it until another state is stored.
 */
#pragma once

#include "../abi/maps.h"
#include "../lb/health.h"
#include "../lib/addr.h"
#include "table.h"

/* Of the states of one way those of another flow have other bits here. */
static __always_inline bool is_same_flow(__u32 a, __u32 b)
{
	return !((a ^ b) & (FLOW_BUSY | FLOW_GENERATIONS));
}

#define STATE_TRIES 16

/*
 * Changes a state that was seen: clears bits, then sets others. Returns what it was
 * before, so that what follows from a bit happens once; FLOW_BUSY if the way is
 * another flow's by now.
 */
GLOBAL_FUNC __u32 change_state(__u32 *state, __u32 seen, __u32 clear, __u32 set)
{
	__u32 next, was;

	if (!state)
		return FLOW_BUSY;
	for (int i = 0; i < STATE_TRIES; i++) {
		next = (seen & ~clear) | set;
		if (next == seen)
			return seen;
		was = __sync_val_compare_and_swap(state, seen, next);
		if (was == seen)
			return seen;
		if (!is_same_flow(was, seen))
			break;
		seen = was;
	}
	return FLOW_BUSY;
}

/* Sets a flag; false if it was set before. */
static __always_inline bool set_flow_flag(const struct found *f, __u32 flag)
{
	return !((change_state(f->state, f->seen, 0, flag)) &
		 (flag | FLOW_BUSY));
}

/* Clears a flag; false if it was not set. */
static __always_inline bool clear_flow_flag(const struct found *f, __u32 flag)
{
	return f->seen & flag &&
	       change_state(f->state, f->seen, flag, 0) & flag;
}

/*
 * Notes something beside the state of a flow, in place of what it was. If the way has been
 * given to another flow meanwhile, that knows something else.
 */
static __always_inline void set_known(const struct found *f, __u32 was,
				      __u32 is)
{
	__sync_val_compare_and_swap(&f->flow->known, was, is);
}

/* What was in flight in a state that a flow had, and has no more, is not now. */
static __always_inline void flow_uncounted(const struct flow *flow, __u32 state)
{
	__u32 id = flow->known;
	struct backend *b;

	if (!(state & FLOW_COUNTED))
		return;
	b = bpf_map_lookup_elem(&backends, &id);
	if (b && id && same_addr(&b->to.addr, &flow->to) &&
	    b->to.port == flow->to_dst_port)
		one_less(b);
}

static __always_inline __u32 next_generation(__u32 state)
{
	return (state + FLOW_GENERATION) & FLOW_GENERATIONS;
}

/* Makes a way busy whose state was seen; false if that is another by now. */
static __always_inline bool own_way(__u32 *state, __u32 seen)
{
	return __sync_val_compare_and_swap(
		       state, seen, FLOW_BUSY | next_generation(seen)) == seen;
}

static __always_inline void publish(__u32 *state, __u32 next)
{
	asm volatile("" ::: "memory");
	*(volatile __u32 *)state = next;
}

/* Frees the way of a flow; false if another CPU was first. */
static __always_inline bool remove_flow(const struct found *f)
{
	if (!own_way(f->state, f->seen))
		return false;
	flow_uncounted(f->flow, f->seen);
	*f->tag = 0;
	publish(f->state, next_generation(f->seen));
	return true;
}
