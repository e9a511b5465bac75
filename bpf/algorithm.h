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
	const struct ip_addr *addr;
	const struct ip_addr *dst; /* that it asked for */
	__u64 port;		   /* or the cookie of its socket */
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

/* A table as an argument of a function that is verified once. */
static __always_inline __u64 table_word(struct table t)
{
	return (__u64)t.size << 32 | t.offset;
}

/* Does a hash choose from a view, so that every node chooses alike? */
static __always_inline bool is_hashed(struct view v)
{
	__u32 algorithm = v.size >> VIEW_ALGORITHM_SHIFT;

	return algorithm >= ALGORITHM_MAGLEV && algorithm <= ALGORITHM_DH;
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

static __always_inline __u64 hash_flow(const struct ip_addr *client, __u64 port)
{
	struct siphash s = sip_begin();

	sip_addr(&s, client);
	sip_word(&s, port);
	return sip_end(&s, sizeof(*client) + sizeof(port));
}

/*
 * An index into a table of which offset and size are given, below the size. The
 * algorithm may be weighted. It must take any pointer.
 */
STEP int choose_index(const struct ip_addr *client, const struct ip_addr *dst,
		      __u64 port, __u64 table, enum algorithm algorithm)
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
		return better_of_two(&r);
	default:
		return random_index(r.table.size);
	}
}

/* The slot that a client gets of a view whose table is not empty. */
static __always_inline __u32 choose_slot(struct view v, const struct client *c)
{
	__u32 algorithm = v.size >> VIEW_ALGORITHM_SHIFT;

	if (algorithm == ALGORITHM_RANDOM)
		return v.offset + random_index(v.size);
	return v.offset + choose_index(c->addr, c->dst, c->port,
				       table_word(table_of(v)), algorithm);
}
