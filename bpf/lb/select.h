/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Which backend does a client get of a frontend? Written once, called from every
 * hook: the one that it had, if its Service has session affinity, or the one that an
 * algorithm chooses, or another where that one is ejected or has only begun.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../lib/mask.h"
#include "../lib/time.h"
#include "../lib/unknown.h"
#include "../lib/verdict.h"
#include "affinity.h"
#include "algorithm.h"
#include "client.h"
#include "health.h"
#include "table.h"

/* Slots of a table that are looked at. */
#define SURVEY_SLOTS 256

#define NO_SLOT 0xffffffff
#define NO_BEST (~0ULL >> 1) /* its lower half is NO_SLOT */

/* What a look at a table shows. Slots are indexes into it. */
struct survey {
	struct table table;
	__u32 from;   /* the one to begin with */
	__u32 chosen; /* the one to avoid, or NO_SLOT */
	__u32 seen;
	__u32 client;	      /* its ID */
	__u32 ejected;	      /* to the client */
	__u32 ejected_before; /* the chosen one */
	/*
	 * The best that is not one: what is in flight there, and in the lower half how many
	 * were looked at before it, or NO_SLOT.
	 */
	__u64 best;
	__u64 compares; /* mask: the fewest in flight are best, not the first */
};

/* The index of the slot that is looked at after so many others. */
static __always_inline __u32 surveyed(const struct survey *s, __u32 i)
{
	__u32 index = s->from + i;

	return index >= s->table.size ? index - s->table.size : index;
}

/* Where source ports run short is the last to be taken: more than is ever in flight. */
static __always_inline __u64 scarce_last(const struct backend *b)
{
	return 1ULL << 62 & mask_if_less(0, b->scarce_at);
}

/*
 * What is best is kept without a branch: the verifier of Linux 6.1 sees one look at a slot, and
 * takes away the branches that only a second one takes.
 */
static long survey_slot(__u32 i, void *data)
{
	struct survey *s = data;
	__u32 index = surveyed(s, i), id = slot_at(s->table.offset + index);
	struct backend *b = bpf_map_lookup_elem(&backends, &id);

	if (!b || !id)
		return 0;
	s->seen++;
	if (is_ejected_for(b, s->client)) {
		s->ejected++;
		s->ejected_before += index < s->chosen;
	} else if (index != s->chosen) {
		s->best = lesser(s->best,
				 ((__u64)in_flight(b) << 32 & s->compares) |
					 scarce_last(b) | i);
	}
	return 0;
}

/*
 * At most max_ejected_percent of the slots are avoided, never all. Large tables are
 * judged by a random sample.
 */
static __always_inline bool is_too_many(const struct survey *s)
{
	__u32 most = s->seen * max_ejected_percent / 100, before;

	before = s->ejected_before;
	if (s->table.size > SURVEY_SLOTS)
		before = (__u64)s->ejected * ((s->chosen * 0x9e3779b1) >> 16) >>
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
	s->compares = mask_if_less(ALGORITHM_LC - 1, algorithm);
	s->best = NO_BEST;
	s->seen = s->ejected = s->ejected_before = unknown_zero(s->table.size);
	slots = s->table.size < SURVEY_SLOTS ? s->table.size : SURVEY_SLOTS;
	bpf_loop(slots, survey_slot, s, 0);
}

/* The best slot that was found, NO_SLOT if there is none. */
static __always_inline __u32 best_slot(const struct survey *s)
{
	__u32 i = s->best;

	return i == NO_SLOT ? NO_SLOT : s->table.offset + surveyed(s, i);
}

/*
 * May all of a view be avoided, since a fallback stands in? Where clients say that
 * the backend of a slot is gone, that has to be confirmed first, unless it is this
 * client that says so: one that lies must not send the traffic of others far away.
 */
static __always_inline bool is_sure(__u32 slot, __u32 client)
{
	__u32 id = slot_at(slot);
	struct backend *b = bpf_map_lookup_elem(&backends, &id);

	return b && (b->ejection != EJECTION_ALL || b->failed_by == client);
}

/* Does the client avoid the backend of a slot, as that is ejected? */
static __always_inline bool is_ejected_slot(__u32 slot, __u32 client)
{
	__u32 id = slot_at(slot);
	struct backend *b = bpf_map_lookup_elem(&backends, &id);

	return b && is_ejected_for(b, client);
}

static __always_inline struct fallbacks *fallbacks_of(const struct frontend *f)
{
	__u32 place = f->place;

	return bpf_map_lookup_elem(&fallbacks, &place);
}

/* The view of all zones that a frontend falls back to as a word, 0 for none. */
GLOBAL_FUNC __u64 all_zones(const struct frontend *f)
{
	struct fallbacks *others = f ? fallbacks_of(f) : NULL;

	return others ?
		       view_word(read_view(
			       &others->to[VIEW_FALLBACK_ALL - CLIENT_VIEWS])) :
		       0;
}

/* The best slot of what a frontend falls back to, NO_SLOT if there is none. */
GLOBAL_FUNC __u32 fall_back(const struct frontend *f, __u32 client)
{
	struct survey s = { .chosen = NO_SLOT, .client = client };
	struct fallbacks *others = f ? fallbacks_of(f) : NULL;
	struct view v;
	__u32 slot;

	for (int i = 0; others && i < VIEWS - CLIENT_VIEWS; i++) {
		v = read_view(&others->to[i]);
		if (!v.size)
			continue;
		survey_view(&s, v);
		slot = best_slot(&s);
		if (slot == NO_SLOT)
			continue;
		count(choice_fallback);
		return slot;
	}
	return NO_SLOT;
}

/* What avoid says where a fallback has to stand in. */
#define ALL_EJECTED 0xfffffffe

/*
 * The slot to take in place of one of a view, given as a word, whose backend is to
 * be avoided: the first, from a random one on, or the best. NO_SLOT: the chosen one has
 * to do. ALL_EJECTED is said only if the view falls back. It must take any pointer.
 */
GLOBAL_FUNC __u32 avoid(__u64 view, __u32 slot, bool falls_back, __u32 client)
{
	struct view v = view_of(view);
	struct survey s = { .chosen = slot - v.offset, .client = client };

	survey_view(&s, v);
	if (is_ejected_slot(slot, client) &&
	    !(falls_back && is_sure(slot, client)) && is_too_many(&s))
		return NO_SLOT;
	slot = best_slot(&s);
	if (slot == NO_SLOT)
		return falls_back ? ALL_EJECTED : NO_SLOT;
	count(choice_avoided);
	return slot;
}

/*
 * Is a backend ejected, for a frontend with passive health, and no retry due? Which
 * client it is matters only then.
 */
static __always_inline bool is_ejected(const struct frontend *f,
				       struct backend *b,
				       const struct client *client)
{
	__u32 id;

	if (!b->ejection || !(f->flags & FRONTEND_PASSIVE_HEALTH))
		return false;
	id = client_id(client->addr, client->on_node);
	return is_ejected_for(b, id) && !take_retry(b, id);
}

/*
 * Does a client from elsewhere need a source port of this node, where these run short? One of
 * the node needs none, and forgets what is long ago, too.
 */
static __always_inline bool lacks_port(struct backend *b,
				       const struct client *client)
{
	return b->scarce_at && is_scarce(b, coarse_now()) && !client->on_node;
}

/* Does a frontend want a backend avoided for the moment? */
static __always_inline bool is_avoided(const struct frontend *f,
				       struct backend *b,
				       const struct client *client)
{
	return is_ejected(f, b, client) || lacks_port(b, client) ||
	       (f->slow_start_s && !b->ejection &&
		slow_start_skips(b, f->slow_start_s));
}

/* Changes a choice whose backend is to be avoided, if there is a better one. */
static __always_inline void choose_other(const struct frontend *f,
					 struct view v, bool falls_back,
					 const struct client *client,
					 struct choice *c)
{
	__u32 id = client_id(client->addr, client->on_node), slot;

	falls_back = falls_back && is_ejected_for(c->backend, id);
	slot = avoid(view_word(v), c->slot, falls_back, id);
	if (slot == ALL_EJECTED)
		slot = fall_back(f, id);
	if (slot == NO_SLOT)
		return;
	c->slot = slot;
	find_backend(c);
}

/* Does a client get a backend of all zones, as so many of 2^32 should? */
GLOBAL_FUNC bool spills(const struct frontend *f, const struct ip_addr *client,
			__u64 port)
{
	struct fallbacks *others = f ? fallbacks_of(f) : NULL;

	return client && others && others->spill && all_zones(f) &&
	       (__u32)hash_flow(client, port) < others->spill;
}

/* The table whose backends a client may have had: the widest that it gets. */
static __always_inline struct table remembered(const struct frontend *f,
					       struct view v, bool falls_back)
{
	return table_of(falls_back ? view_of(all_zones(f)) : v);
}

/*
 * Chooses a backend by a view whose table is not empty; false if there is no such backend. It falls
 * back if others may stand in for those of the view.
 */
static __always_inline bool select_from(const struct frontend *f, struct view v,
					bool falls_back,
					const struct client *client,
					struct choice *c)
{
	struct affinity_key key = { .service = f->service };
	struct table may_have = {};
	__u64 had = 0;

	if (f->affinity_timeout_s) {
		may_have = remembered(f, v, falls_back);
		key.client = *client->addr;
		if (recall_backend(f, &key, may_have, c, &had) &&
		    !is_ejected(f, c->backend, client)) {
			count(affinity);
			return true;
		}
	}
	if (falls_back && spills(f, client->addr, client->port))
		v = view_of(all_zones(f));
	c->slot = choose_slot(v, client);
	if (!find_backend(c))
		return false;
	if (is_avoided(f, c->backend, client))
		choose_other(f, v, falls_back, client, c);
	if (!c->backend)
		return false;
	if (f->affinity_timeout_s)
		remember_backend(&key, had, table_word(may_have), c);
	return true;
}

/* Chooses a backend for a socket on this node. */
static __always_inline enum verdict select_internal(const struct frontend *f,
						    const struct client *client,
						    struct choice *c)
{
	struct view v = read_view(&f->views[VIEW_INTERNAL]);

	if (!v.size)
		return refuse(f->flags & FRONTEND_NO_LOCAL << VIEW_INTERNAL ?
				      DROP_NO_LOCAL_ENDPOINT :
				      DROP_NO_ENDPOINT,
			      f->service, NULL, 0);
	if (!select_from(f, v, f->flags & FRONTEND_FALLS_BACK << VIEW_INTERNAL,
			 client, c))
		return refuse(DROP_NO_BACKEND, f->service, NULL, 0);
	return VERDICT_CONTINUE;
}
