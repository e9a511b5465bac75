/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Algorithms that compare backends by what is in flight: the schedulers of IPVS
 * (lc, wlc, sed, nq), which look at all of them, and the better of two.
 */
#pragma once

#include "load.h"
#include "select.h"

/*
 * Of tables up to this size every slot is looked at, so the choice is exact. Of
 * larger ones it is that many random slots: on average the best of them is among
 * the best 1 in 65 of all, whatever their number.
 */
#define LEAST_EXACT 256
#define LEAST_SAMPLES 64

/* What an algorithm chooses from. */
struct request {
	struct table table;
	enum algorithm algorithm;
	__u32 weighted; /* weights follow the slots */
};

/* A slot among those that are compared. */
struct rival {
	__u64 load;   /* lower is better, by weight */
	__u32 weight; /* never 0 */
	__u32 index;  /* in the table */
};

static __always_inline __u32 weight_at(const struct request *r, __u32 index)
{
	__u32 weight = 1;

	if (r->weighted)
		weight = slot_at(r->table.offset + r->table.size + index);
	return weight ? weight : 1;
}

static __always_inline struct backend *backend_at(const struct request *r,
						  __u32 index)
{
	__u32 id = slot_at(r->table.offset + index);

	return bpf_map_lookup_elem(&backends, &id);
}

/* a.load / a.weight < b.load / b.weight */
static __always_inline bool beats(const struct rival *a, const struct rival *b)
{
	return a->load * b->weight < b->load * a->weight;
}

struct least_search {
	const struct request *request;
	struct rival best;
	__u32 from; /* the index to begin with, so that equals take turns */
	bool found;
};

/* What IPVS calls the overhead of a destination. */
static __always_inline __u64 least_load(enum algorithm algorithm, __u32 open)
{
	switch (algorithm) {
	case ALGORITHM_SED:
		return open + 1;
	case ALGORITHM_NQ: /* an idle one beats all that are not */
		return open ? open + 1 : 0;
	default:
		return open;
	}
}

static long compare_slot(__u32 i, void *data)
{
	struct least_search *s = data;
	const struct request *r = s->request;
	struct rival rival;
	struct backend *b;

	if (r->table.size > LEAST_EXACT)
		rival.index = random_index(r->table.size);
	else
		rival.index = s->from + i < r->table.size ?
				      s->from + i :
				      s->from + i - r->table.size;
	b = backend_at(r, rival.index);
	if (!b)
		return 0;
	rival.load = least_load(r->algorithm, in_flight(b));
	rival.weight = weight_at(r, rival.index);
	if (!s->found || beats(&rival, &s->best))
		s->best = rival;
	s->found = true;
	return 0;
}

static __always_inline __u32 least_index(const struct request *r)
{
	struct least_search s = {
		.request = r,
		.from = random_index(r->table.size),
	};

	bpf_loop(r->table.size > LEAST_EXACT ? LEAST_SAMPLES : r->table.size,
		 compare_slot, &s, 0);
	return s.found ? s.best.index : s.from;
}

/* Sets the load of a rival in a choice of two; false without such a backend. */
static __always_inline bool weigh(const struct request *r, struct rival *rival,
				  __u32 *srtt_us)
{
	struct backend *b = backend_at(r, rival->index);

	if (!b)
		return false;
	rival->load = (__u64)in_flight(b) + 1;
	rival->weight = weight_at(r, rival->index);
	*srtt_us = r->algorithm == ALGORITHM_LATENCY ?
			   faded_srtt_us(b, bpf_ktime_get_coarse_ns()) :
			   0;
	return true;
}

/* The better of two random slots (Mitzenmacher, 2001). */
static __always_inline __u32 better_of_two(const struct request *r)
{
	struct rival a = { .index = random_index(r->table.size) };
	struct rival b = { .index = random_index(r->table.size - 1) };
	__u32 srtt_a, srtt_b;

	if (r->table.size < 2)
		return 0;
	if (b.index >= a.index)
		b.index++;
	if (!weigh(r, &a, &srtt_a))
		return b.index;
	if (!weigh(r, &b, &srtt_b))
		return a.index;
	if (srtt_a && srtt_b) { /* one that is unknown says nothing */
		a.load *= srtt_a;
		b.load *= srtt_b;
	}
	return beats(&b, &a) ? b.index : a.index;
}
