/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Which slot of a table does a client get? Random, which most use, costs no call;
 * everything else is one function, verified once. Some algorithms compare backends
 * by what is in flight: the schedulers of IPVS (lc, wlc, sed, nq), which look at all
 * of them, and the better of two.
 */
#pragma once

#include "../abi/maps.h"
#include "../lib/hash.h"
#include "../lib/verdict.h"
#include "client.h"
#include "health.h"
#include "response_time.h"
#include "table.h"

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

/* One of two rivals. */
struct contender {
	struct rival rival;
	struct backend *backend;
};

/* Looks a contender up by its index; false without such a backend. */
static __always_inline bool weigh(const struct request *r, struct contender *c)
{
	c->backend = backend_at(r, c->rival.index);
	if (!c->backend)
		return false;
	c->rival.load = (__u64)in_flight(c->backend) + 1;
	c->rival.weight = weight_at(r, c->rival.index);
	return true;
}

/* A backend is slow if it takes more than twice the other's time plus this many µs. */
#define CLEARLY_US 2048

/*
 * Is b the better one of two? By response time × load, where that is asked for;
 * otherwise by load, and of equals the one that is not clearly slower: a slow one
 * is idle for a moment, too. If the bounds of the times overlap, ignore them, so that
 * a slow backend that is tried again is not flooded.
 */
static __always_inline bool prefers(bool is_latency, __u32 measurer,
				    struct contender *a, struct contender *b)
{
	struct response_time of_a, of_b;

	if (!is_latency && beats(&b->rival, &a->rival))
		return true;
	if (!is_latency && beats(&a->rival, &b->rival))
		return false;
	of_a = ask_response(a->backend, measurer);
	of_b = ask_response(b->backend, measurer);
	if (!is_latency)
		return of_b.most_us &&
		       of_a.least_us > 2 * of_b.most_us + CLEARLY_US;
	if (!of_a.most_us && !of_b.most_us) { /* handshakes alone */
		of_a.most_us = of_a.least_us;
		of_b.most_us = of_b.least_us;
	}
	if (of_a.most_us && of_a.most_us < of_b.least_us) {
		a->rival.load *= of_a.most_us;
		b->rival.load *= of_b.least_us;
	} else if (of_b.most_us && of_b.most_us < of_a.least_us) {
		a->rival.load *= of_a.least_us;
		b->rival.load *= of_b.most_us;
	}
	return beats(&b->rival, &a->rival);
}

/*
 * The better of two random slots (Mitzenmacher, 2001), for a client as it is known to
 * response times.
 */
static __always_inline __u32 better_of_two(const struct request *r,
					   __u32 measurer)
{
	struct contender a = { .rival.index = random_index(r->table.size) };
	struct contender b = { .rival.index = random_index(r->table.size - 1) };

	if (r->table.size < 2)
		return 0;
	if (b.rival.index >= a.rival.index)
		b.rival.index++;
	if (!weigh(r, &a))
		return b.rival.index;
	if (!weigh(r, &b))
		return a.rival.index;
	return prefers(r->algorithm == ALGORITHM_LATENCY, measurer, &a, &b) ?
		       b.rival.index :
		       a.rival.index;
}

/* Every slot in turn, for all clients together: CPUs share the cursor. */
static __always_inline __u32 next_index(const struct table *t)
{
	__u32 cursor = t->offset + t->size;
	__u32 chunk_index = cursor / SLOTS_PER_CHUNK;
	struct slot_chunk *chunk = bpf_map_lookup_elem(&slots, &chunk_index);

	if (!chunk)
		return 0;
	return __sync_fetch_and_add(&chunk->backend[cursor % SLOTS_PER_CHUNK],
				    1) %
	       t->size;
}

/* A hash spread over the slots of a table, without a division. */
static __always_inline __u32 hashed_index(__u64 hash, __u32 size)
{
	return (hash >> 32) * size >> 32;
}

static __always_inline __u64 hash_flow(const struct ip_addr *client, __u64 port)
{
	struct siphash s = sip_begin(hash_key);

	sip_addr(&s, client);
	sip_word(&s, port);
	return sip_end(&s, sizeof(*client) + sizeof(port), 0);
}

/*
 * An index into a table of which offset and size are given, below the size. The
 * algorithm may be weighted. It must take any pointer.
 */
GLOBAL_FUNC int choose_index(const struct ip_addr *client,
			     const struct ip_addr *dst, __u64 port, __u64 table,
			     enum algorithm algorithm)
{
	struct request r = {
		.table = { .offset = table, .size = table >> 32 },
		.algorithm = algorithm & ~ALGORITHM_WEIGHTED,
		.weighted = algorithm & ALGORITHM_WEIGHTED,
	};

	if (!client || !dst || !r.table.size)
		return 0;
	switch (r.algorithm) {
	case ALGORITHM_RR:
	case ALGORITHM_WRR:
		return next_index(&r.table);
	case ALGORITHM_MAGLEV:
	case ALGORITHM_STABLE:
		return hashed_index(hash_flow(client, port), r.table.size);
	case ALGORITHM_SH:
		return hashed_index(hash_addr(client), r.table.size);
	case ALGORITHM_DH:
		return hashed_index(hash_addr(dst), r.table.size);
	case ALGORITHM_LC:
	case ALGORITHM_WLC:
	case ALGORITHM_SED:
	case ALGORITHM_NQ:
		return least_index(&r);
	case ALGORITHM_P2C:
	case ALGORITHM_LATENCY:
		return better_of_two(&r, measurer_at(client));
	default:
		return random_index(r.table.size);
	}
}

/* The slot that a client gets of a view whose table is not empty. */
static __always_inline __u32 choose_slot(struct view v, const struct client *c)
{
	__u32 algorithm = v.size >> VIEW_ALGORITHM_SHIFT;

	if (c->steady)
		algorithm = ALGORITHM_STABLE;
	if (algorithm == ALGORITHM_RANDOM)
		return v.offset + random_index(v.size);
	return v.offset + choose_index(c->addr, c->dst, c->port,
				       table_word(table_of(v)), algorithm);
}
