/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Choosing another backend, where the one that an algorithm chose is a suspect or
 * has only begun. All of this is off the usual way.
 */
#pragma once

#include "algorithm.h"
#include "health.h"

/* Slots of a table that are looked at. */
#define SURVEY_SLOTS 256

#define NO_SLOT 0xffffffff

/* What a look at a table shows. Slots are indexes into it. */
struct survey {
	struct table table;
	__u32 from;   /* the one to begin with */
	__u32 chosen; /* the one to avoid, or NO_SLOT */
	__u32 seen;
	__u32 suspects;
	__u32 suspects_before; /* the chosen one */
	__u32 other;	       /* the best that is not one, or NO_SLOT */
	__u32 in_flight;       /* of that */
	bool compares; /* the fewest in flight are best, not the first */
};

static long survey_slot(__u32 i, void *data)
{
	struct survey *s = data;
	__u32 index = s->from + i, id;
	struct backend *b;

	if (index >= s->table.size)
		index -= s->table.size;
	id = slot_at(s->table.offset + index);
	b = bpf_map_lookup_elem(&backends, &id);
	if (!b || !id)
		return 0;
	s->seen++;
	if (is_suspect(b)) {
		s->suspects++;
		s->suspects_before += index < s->chosen;
	} else if (index != s->chosen &&
		   (s->other == NO_SLOT ||
		    (s->compares && in_flight(b) < s->in_flight))) {
		s->other = index;
		s->in_flight = in_flight(b);
	}
	return 0;
}

/*
 * Of so many slots so many may be avoided, never all. Suspects beyond that are not
 * avoided. Of a large table a part stands for all, in an order by chance.
 */
static __always_inline bool is_too_many(const struct survey *s)
{
	__u32 most = s->seen * max_ejected_percent / 100, before;

	before = s->suspects_before;
	if (s->table.size > SURVEY_SLOTS)
		before =
			(__u64)s->suspects * ((s->chosen * 0x9e3779b1) >> 16) >>
			16;
	return before >= (most < s->seen ? most : s->seen - 1);
}

/* Looks at the table of a view, from the chosen slot on if that was by a hash. */
static __always_inline void survey_view(struct survey *s, struct view v)
{
	__u32 algorithm = v.size >> VIEW_ALGORITHM_SHIFT & ~ALGORITHM_WEIGHTED;
	__u32 slots;

	s->table = table_of(v);
	s->from = random_index(s->table.size);
	if (is_hashed(v) && s->chosen < s->table.size)
		s->from = s->chosen;
	s->compares = algorithm >= ALGORITHM_LC;
	s->other = NO_SLOT;
	s->seen = s->suspects = s->suspects_before = 0;
	slots = s->table.size < SURVEY_SLOTS ? s->table.size : SURVEY_SLOTS;
	bpf_loop(slots, survey_slot, s, 0);
}

/* The view of a wider set of backends, if a frontend has one. */
static __always_inline bool wider_view(const struct frontend *f, int i,
				       struct view *v)
{
	*v = read_view(&f->wider[i & 1]);
	return v->size;
}

/*
 * The slot to take in place of one of a view, given as a word, whose backend is to
 * be avoided: the first, from a random one on, or the best. If all of the view are
 * suspects and it widens, it is one of a wider view; what is left at the end is
 * taken as it is. NO_SLOT: the chosen one has to do. It must take any pointer.
 */
STEP __u32 avoid(const struct frontend *f, __u64 view, __u32 slot, bool widens)
{
	struct view v = { .offset = view, .size = view >> 32 };
	struct survey s = { .chosen = slot - v.offset };

	if (!f)
		return NO_SLOT;
	survey_view(&s, v);
	if (!widens && is_too_many(&s))
		return NO_SLOT;
	if (s.other != NO_SLOT) {
		count(choice_avoided);
		return s.table.offset + s.other;
	}
	s.chosen = NO_SLOT;
	for (int i = 0; widens && i < 2; i++) {
		if (!wider_view(f, i, &v))
			continue;
		survey_view(&s, v);
		if (s.other == NO_SLOT)
			continue;
		count(choice_widened);
		return s.table.offset + s.other;
	}
	return NO_SLOT;
}

/* Is a backend a suspect that a frontend avoids, with no trial due? */
static __always_inline bool is_ejected(const struct frontend *f,
				       struct backend *b)
{
	return f->flags & FRONTEND_PASSIVE_HEALTH && is_suspect(b) &&
	       !take_trial(b);
}

/* Does a frontend want a backend avoided for the moment? */
static __always_inline bool is_avoided(const struct frontend *f,
				       struct backend *b)
{
	return is_ejected(f, b) || (f->slow_start_s && !is_suspect(b) &&
				    is_held_back(b, f->slow_start_s));
}

/* Changes a choice whose backend is to be avoided, if there is a better one. */
static __always_inline void choose_other(const struct frontend *f,
					 struct view v, bool widens,
					 struct choice *c)
{
	__u32 slot = c->slot;

	widens &= is_suspect(c->backend);
	slot = avoid(f, (__u64)v.size << 32 | v.offset, slot, widens);
	if (slot == NO_SLOT)
		return;
	c->slot = slot;
	find_backend(c);
}

/* Does a client get a backend of everywhere, as so many of 2^32 should? */
static __always_inline bool spills(const struct frontend *f,
				   const struct client *client)
{
	return f->wider[1].size &&
	       (__u32)hash_flow(client->addr, client->port) < f->spill;
}
