/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The flow table: sets of seven ways, each with one direction of a flow. Nothing here
 * knows a packet or a context, so that any hook can use it.
 *
 * A random universal hash says in which two sets a flow may be: in the second only where
 * the first has overflowed. Where both are full, one of theirs moves to its second set
 * (cuckoo hashing: Pagh and Rodler, 2004), so that the table can be filled. The first
 * line of a set has seven tags and seven states, and so says in one access which line to
 * read, and who makes room. A state is one word: when the flow was noted, and its flags
 * (flow/state.h). Who makes room for a new flow is in flow/room.h.
 *
 * A reader takes no lock. It compares the tag, the state and all of the key, copies the
 * target, and last compares the checksum, 16 bits over target and tag. The tag is the one
 * that the reader has computed from its packet, so the checksum also covers the key: the
 * target of another flow, to which the way is given meanwhile, does not pass. The order of
 * loads and stores does not matter: that of arm64 is weak, and Linux 6.1 has no barrier
 * instruction. A wrong target passes with a chance of one in 65,536 of an event that takes
 * an eviction within nanoseconds. A compare-and-
 * swap is a full barrier on every architecture, so that what the owner of a way writes is
 * never seen before the way is busy. Who adds a flow may on a weak one see the state of
 * another CPU that has just added it, and not its key yet, and adds it once more: two first
 * packets may get two backends, and the copy that no packet finds ages.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../lib/addr.h"
#include "../lib/time.h"
#include "../lib/verdict.h"

#define FLOW_TIME_MASK (0xffffU << FLOW_TIME_SHIFT)
#define FLOW_GENERATIONS (3U * FLOW_GENERATION)
#define KEY_WORDS 5 /* of 8 bytes; the last one ends with the checksum */

/* A flow where it stands. */
struct found {
	struct flow *flow;
	__u32 *state;
	__u32 *tag;
	__u32 seen; /* the state as it was read */
	__u32 place;
};

/* A time of the coarse clock as flows have it. */
static __always_inline __u32 flow_time(__u64 now_ns)
{
	return now_ns >> FLOW_TIME_NS_SHIFT;
}

/* How long ago a flow was noted, in units of flow_time. */
static __always_inline __u32 flow_idle(__u32 state, __u64 now_ns)
{
	return elapsed_bits(flow_time(now_ns), state >> FLOW_TIME_SHIFT, 16);
}

/* When a flow was noted, of which a state has but the lower bits. */
static __always_inline __u32 noted_at(__u32 state, __u64 now_ns)
{
	return ticks_before(flow_time(now_ns), flow_idle(state, now_ns));
}

/* Units of flow_time after which a flow is noted again: about a second. */
#define NOTE_TIMES 4

/* So many of them are in some seconds, rounded up. */
static __always_inline __u64 flow_times(__u64 seconds)
{
	return (seconds * NSEC_PER_SEC >> FLOW_TIME_NS_SHIFT) + 1;
}

/*
 * Of the hash that the upper half says the first set of; the agent computes the same. The
 * sum is as regular as addresses and ports of neighbours are: for one draw of factors in
 * two hundred a few sets would get most of them, were it not spread.
 */
static __always_inline __u64 flow_hash(const struct tuple *t)
{
	__u32 zero = 0;
	struct flow_factors *f = bpf_map_lookup_elem(&flow_factors, &zero);
	__u64 sum = 0;

	if (!f)
		return 0;
	for (int i = 0; i < 4; i++)
		sum += f->factor[i] * t->src.word[i] +
		       f->factor[4 + i] * t->dst.word[i];
	sum += f->factor[8] * ((__u32)t->src_port << 16 | t->dst_port);
	sum += f->factor[9] * ((__u32)t->protocol << 8 | t->hook);
	sum = (sum ^ sum >> 32) * f->factor[10];
	return sum ^ sum >> 29;
}

static __always_inline __u32 first_set(__u64 hash)
{
	return (hash >> 32) * flow_sets >> 32;
}

static __always_inline __u32 second_set(__u64 hash)
{
	__u32 zero = 0;
	struct flow_factors *f = bpf_map_lookup_elem(&flow_factors, &zero);

	return f ? (hash * f->factor[11] >> 32) * flow_sets >> 32 : 0;
}

static __always_inline __u32 tag_of(__u64 hash)
{
	return (__u32)hash | 1;
}

/* Without a branch for each word. */
static __always_inline bool has_key(const struct flow *flow,
				    const struct tuple *t)
{
	const __u64 *a = (const void *)flow, *b = (const void *)t;
	__u64 differs = (a[KEY_WORDS - 1] ^ b[KEY_WORDS - 1]) << 16;

	for (int i = 0; i < KEY_WORDS - 1; i++)
		differs |= a[i] ^ b[i];
	return !differs;
}

/* The checksum of a flow: over its target and, by the tag, over its key. */
static __always_inline __u16 flow_checksum(const struct ip_addr *to,
					   __u32 src_port, __u32 dst_port,
					   __u32 tag)
{
	__u32 sum = to->word[0] ^ to->word[1] ^ to->word[2] ^ to->word[3];

	sum ^= src_port << 16 | dst_port;
	return ((sum ^ tag) * FILTER_FACTOR_3) >> 16;
}

/*
 * Replaces the key of a flow, which has a tag, by the target. False if the way holds another
 * flow by now.
 */
static __always_inline bool becomes(struct tuple *t, const struct flow *flow,
				    __u32 tag)
{
	struct ip_addr to = flow->to;

	t->src_port = flow->to_src_port;
	t->dst_port = flow->to_dst_port;
	if (t->hook == HOOK_IN)
		t->dst = to;
	else
		t->src = to;
	return flow->checksum ==
	       flow_checksum(&to, t->src_port, t->dst_port, tag);
}

/* Do packets of a flow become just this? The end that stays is that of the key. */
static __always_inline bool leads_to(const struct flow *flow,
				     const struct tuple *to)
{
	return flow->to_src_port == to->src_port &&
	       flow->to_dst_port == to->dst_port &&
	       same_addr(&flow->to,
			 flow->hook == HOOK_IN ? &to->dst : &to->src);
}

/*
 * Does a state belong to a flow? A reader may have seen the tag of a flow that is gone,
 * and then the state of a free way. Each flow is half-open or has been seen.
 */
static __always_inline bool is_used(__u32 state)
{
	return !(state & FLOW_BUSY) && state & (FLOW_HALF_OPEN | FLOW_SEEN);
}

/*
 * The way that a flow gets where it is free. Who looks for the flow can fetch that line
 * beside the first one of the set, and not after it: of large tables each is a wait for
 * memory.
 */
static __always_inline __u32 usual_way(__u32 tag)
{
	return (tag >> 8 & 0xff) * FLOW_WAYS >> 8;
}

/* Has the CPU fetch a line, and goes on meanwhile. */
static __always_inline void fetch_line(const void *line)
{
	(void)*(const volatile __u32 *)line;
}

/* The place of a flow: its set, and in the lowest three bits its way. */
#define NO_FLOW 0xffffffff

static __always_inline __u32 place_of(__u32 index, __u32 way)
{
	return index << 3 | way;
}

/* The same where the packets of a set are counted, NULL where none is. */
static __always_inline struct flow_traffic *fetch_traffic(__u32 index)
{
	struct flow_traffic *t;

	if (!count_traffic)
		return NULL;
	t = bpf_map_lookup_elem(&flow_traffic, &index);
	if (t)
		fetch_line(t);
	return t;
}

static __always_inline bool is_in(struct flow_set *s, __u32 way, __u32 tag,
				  const struct tuple *t, struct found *f)
{
	if (s->tag[way] != tag)
		return false;
	f->seen = *(volatile __u32 *)&s->state[way];
	if (!is_used(f->seen) || !has_key(&s->way[way], t))
		return false;
	f->flow = &s->way[way];
	f->state = &s->state[way];
	f->tag = &s->tag[way];
	return true;
}

static __always_inline bool find_in(__u32 index, __u32 tag,
				    const struct tuple *t, struct found *f,
				    struct flow_traffic **traffic,
				    bool *overflow)
{
	struct flow_set *s = bpf_map_lookup_elem(&flow_table, &index);

	if (!s)
		return false;
	fetch_line(&s->way[usual_way(tag)]);
	*traffic = fetch_traffic(index);
	if (count_traffic && !*traffic)
		return false; /* never: each set has one */
#pragma unroll
	for (int w = 0; w < FLOW_WAYS; w++)
		if (is_in(s, w, tag, t, f)) {
			f->place = place_of(index, w);
			return true;
		}
	*overflow = *(volatile __u32 *)&s->overflow;
	return false;
}

/* Finds the flow with a key, its tag, and where it counts. For packets, of which there are many. */
static __always_inline bool find_here(const struct tuple *t, struct found *f,
				      __u32 *tag, struct flow_traffic **traffic)
{
	__u64 hash = flow_hash(t);
	bool overflow = false;

	*tag = tag_of(hash);
	if (find_in(first_set(hash), tag_of(hash), t, f, traffic, &overflow))
		return true;
	return overflow && find_in(second_set(hash), tag_of(hash), t, f,
				   traffic, &overflow);
}

static __always_inline __u32 place_in(__u32 index, __u32 tag,
				      const struct tuple *t, bool *overflow)
{
	struct flow_set *s = bpf_map_lookup_elem(&flow_table, &index);

	if (!s)
		return NO_FLOW;
#pragma unroll
	for (int w = 0; w < FLOW_WAYS; w++)
		if (s->tag[w] == tag &&
		    is_used(*(volatile __u32 *)&s->state[w]) &&
		    has_key(&s->way[w], t))
			return place_of(index, w);
	*overflow = *(volatile __u32 *)&s->overflow;
	return NO_FLOW;
}

GLOBAL_FUNC __u32 find_place(const struct tuple *t)
{
	bool overflow = false;
	__u32 place;
	__u64 hash;

	if (!t)
		return NO_FLOW;
	hash = flow_hash(t);
	place = place_in(first_set(hash), tag_of(hash), t, &overflow);
	if (place == NO_FLOW && overflow)
		place = place_in(second_set(hash), tag_of(hash), t, &overflow);
	return place;
}

/* The flow at a place, false if there is none or it is just being replaced. */
static __always_inline bool flow_at(__u32 place, struct found *f)
{
	__u32 index = place >> 3, way = place & 7;
	struct flow_set *s = bpf_map_lookup_elem(&flow_table, &index);

	asm volatile("" : "+r"(way)); /* before Linux 6.8 != is no bound */
	if (place == NO_FLOW || !s || way >= FLOW_WAYS)
		return false;
	f->flow = &s->way[way];
	f->state = &s->state[way];
	f->tag = &s->tag[way];
	f->seen = *(volatile __u32 *)f->state;
	f->place = place;
	return is_used(f->seen);
}

/*
 * Finds the flow with a key, by a function that is verified once. One that moves in the
 * nanoseconds between the two is missed: this is not for packets of flows, see find_here.
 */
static __always_inline bool find_flow(const struct tuple *t, struct found *f)
{
	return flow_at(find_place(t), f) && has_key(f->flow, t);
}

static __always_inline enum hook other_hook(__u8 hook)
{
	return hook == HOOK_IN ? HOOK_OUT : HOOK_IN;
}

/* Writes the key of the other direction of a flow that is seen at a hook. */
static __always_inline void other_key(struct tuple *key, const struct tuple *to,
				      __u8 hook)
{
	key->src = to->dst;
	key->dst = to->src;
	key->src_port = to->dst_port;
	key->dst_port = to->src_port;
	key->protocol = to->protocol;
	key->hook = other_hook(hook);
	key->pad[0] = key->pad[1] = 0;
}

/* The place of the other direction of a flow, given one with its key. */
GLOBAL_FUNC __u32 place_of_other(const struct tuple *key,
				 const struct flow *flow)
{
	struct tuple other = {};

	if (!key || !flow)
		return NO_FLOW;
	other.src = key->hook == HOOK_IN ? flow->to : key->dst;
	other.dst = key->hook == HOOK_IN ? key->src : flow->to;
	other.src_port = flow->to_dst_port;
	other.dst_port = flow->to_src_port;
	other.protocol = key->protocol;
	other.hook = other_hook(key->hook);
	return find_place(&other);
}

/* Has a flow the key of the other direction of a flow, given one with its key? */
static __always_inline bool is_other(const struct flow *other,
				     const struct tuple *key,
				     const struct flow *flow)
{
	bool in = key->hook == HOOK_IN;

	return other->src_port == flow->to_dst_port &&
	       other->dst_port == flow->to_src_port &&
	       other->protocol == key->protocol &&
	       other->hook == other_hook(key->hook) &&
	       same_addr(&other->src, in ? &flow->to : &key->dst) &&
	       same_addr(&other->dst, in ? &key->src : &flow->to);
}

/* Finds the other direction of a flow, given one with its key. As with find_flow one that moves is missed. */
static __always_inline bool find_other(const struct tuple *key,
				       const struct flow *flow,
				       struct found *other)
{
	return flow_at(place_of_other(key, flow), other) &&
	       is_other(other->flow, key, flow);
}

/*
 * Does the other direction of a flow lead back to the key of this one? Its place may be that
 * of a later connection of the client, to another backend.
 */
static __always_inline bool leads_back(const struct tuple *key,
				       const struct flow *other)
{
	return other->to_src_port == key->dst_port &&
	       other->to_dst_port == key->src_port &&
	       same_addr(&other->to,
			 key->hook == HOOK_IN ? &key->dst : &key->src);
}
