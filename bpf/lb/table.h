/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Tables: what a view says, what a slot names, and random numbers to choose by. */
#pragma once

#include "../abi/maps.h"

/* A view as an argument or a result of a function that is verified once. */
static __always_inline __u64 view_word(struct view v)
{
	return (__u64)v.size << 32 | v.offset;
}

static __always_inline struct view view_of(__u64 word)
{
	return (struct view){ .offset = word, .size = word >> 32 };
}

/* Reads a view in one load. */
static __always_inline struct view read_view(const struct view *v)
{
	return view_of(*(const volatile __u64 *)v);
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

/* A slot of a table, and the backend that it names. */
struct choice {
	__u32 slot;
	__u32 id;
	struct backend *backend;
};

/* The backend ID in a slot, 0 if there is none. */
static __always_inline __u32 slot_at(__u32 slot)
{
	__u32 chunk_index = slot / SLOTS_PER_CHUNK;
	struct slot_chunk *chunk;

	if (slot & DENSE_SLOT)
		return slot & ~DENSE_SLOT;
	chunk = bpf_map_lookup_elem(&slots, &chunk_index);
	return chunk ? chunk->backend[slot % SLOTS_PER_CHUNK] : 0;
}

/* Fills in the backend that c->slot names; false if there is none. */
static __always_inline bool find_backend(struct choice *c)
{
	c->id = slot_at(c->slot);
	c->backend = bpf_map_lookup_elem(&backends, &c->id);
	return c->id && c->backend && c->backend->to.port;
}

/*
 * A random number: the upper half of a linear congruential generator with the
 * constants of Knuth's MMIX, one for each CPU, which the kernel's generator
 * starts. Asking that one each time would cost as much as a look-up in a hash:
 * returns of calls are slow on CPUs that guard against speculation. If two
 * tasks of a CPU get the same number, no harm is done.
 */
static __always_inline __u32 random_u32(void)
{
	__u32 zero = 0;
	__u64 *state = bpf_map_lookup_elem(&random_state, &zero);

	if (!state)
		return bpf_get_prandom_u32();
	if (!*state)
		*state = (__u64)bpf_get_prandom_u32() << 32;
	*state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
	return *state >> 32;
}

/* Uniform over 0 … size - 1 without a division. */
static __always_inline __u32 random_index(__u32 size)
{
	return (__u64)random_u32() * size >> 32;
}

struct table_search {
	struct table table;
	__u32 wanted; /* backend ID */
	__u32 slot;   /* of the table, where found */
	bool found;
};

static long search_slot(__u32 i, void *data)
{
	struct table_search *s = data;

	s->slot = s->table.offset + i;
	s->found = slot_at(s->slot) == s->wanted;
	return s->found;
}

/* Does a table name a backend? Looks at every slot: not for the hot path. */
static __always_inline bool table_has(struct table t, __u32 backend_id,
				      __u32 *slot)
{
	struct table_search s = { .table = t, .wanted = backend_id };

	bpf_loop(t.size, search_slot, &s, 0);
	*slot = s.slot;
	return s.found;
}

/* Does a slot of a table name a backend? */
static __always_inline bool slot_names(struct table t, __u32 backend_id,
				       __u32 slot)
{
	return slot - t.offset < t.size && slot_at(slot) == backend_id;
}

/*
 * Does a table still name the backend that a slot named once? Mostly the slot
 * itself still does; only where the table has changed it takes a search. Then
 * *slot is the one that does now.
 */
static __always_inline bool still_names(struct table t, __u32 backend_id,
					__u32 *slot)
{
	return slot_names(t, backend_id, *slot) ||
	       table_has(t, backend_id, slot);
}
