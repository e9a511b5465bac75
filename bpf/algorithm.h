/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Choosing from a table: the same at every hook. Random, which most use, costs no
 * call; everything else is one function, verified once.
 */
#pragma once

#include "hash.h"
#include "least.h"

/* Who wants a backend. */
struct client {
	struct ip_addr addr;
	struct ip_addr dst; /* that it asked for */
	__u64 port;	    /* or the cookie of its socket */
};

/* Reads a view in one load. */
static __always_inline struct view read_view(const struct view *v)
{
	__u64 word = *(const volatile __u64 *)v;

	return (struct view){ .offset = word, .size = word >> 32 };
}

static __always_inline struct table table_of(struct view v)
{
	return (struct table){ v.offset, v.size & VIEW_SIZE_MASK };
}

/* Every slot in turn, whoever asks: the cursor is shared by all CPUs. */
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

static __always_inline __u64 hash_addr(const struct ip_addr *a)
{
	struct siphash s = sip_begin();

	sip_addr(&s, a);
	return sip_end(&s, sizeof(*a));
}

static __always_inline __u64 hash_flow(const struct request *r)
{
	struct siphash s = sip_begin();

	sip_addr(&s, &r->client);
	sip_word(&s, r->port);
	return sip_end(&s, sizeof(r->client) + sizeof(r->port));
}

/* An index into the table of a request, below its size, which is not 0. */
STEP int choose_index(const struct request *r)
{
	if (!r || !r->table.size)
		return 0;
	switch (r->algorithm) {
	case ALGORITHM_RR:
	case ALGORITHM_WRR:
		return next_index(&r->table);
	case ALGORITHM_MAGLEV:
	case ALGORITHM_STABLE:
		return hashed_index(hash_flow(r), r->table.size);
	case ALGORITHM_SH:
		return hashed_index(hash_addr(&r->client), r->table.size);
	case ALGORITHM_DH:
		return hashed_index(hash_addr(&r->dst), r->table.size);
	case ALGORITHM_LC:
	case ALGORITHM_WLC:
	case ALGORITHM_SED:
	case ALGORITHM_NQ:
		return least_index(r);
	case ALGORITHM_P2C:
	case ALGORITHM_LATENCY:
		return better_of_two(r);
	default:
		return random_index(r->table.size);
	}
}

/* The slot that a client gets of a view whose table is not empty. */
static __always_inline __u32 choose_slot(struct view v,
					 const struct client *client)
{
	__u32 algorithm = v.size >> VIEW_ALGORITHM_SHIFT;
	struct request r;

	if (algorithm == ALGORITHM_RANDOM)
		return v.offset + random_index(v.size);
	r = (struct request){
		.client = client->addr,
		.dst = client->dst,
		.port = client->port,
		.table = table_of(v),
		.algorithm = algorithm & ~ALGORITHM_WEIGHTED,
		.weighted = algorithm & ALGORITHM_WEIGHTED,
	};
	return v.offset + choose_index(&r);
}
