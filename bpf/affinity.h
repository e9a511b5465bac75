/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Session affinity ClientIP: a client that comes again before the timeout gets
 * the backend it had, as long as the Service has it. Every new connection
 * starts the timeout anew.
 */
#pragma once

#include "avoid.h"

/*
 * A client on this node, as an address that no network has: it is its
 * namespace. The family is part of it, since the backends of both differ.
 */
static __always_inline struct ip_addr local_client(__u64 netns_cookie, bool ip4)
{
	return (struct ip_addr){
		.word = { 0xffffffff, ip4 ? 4 : 6, netns_cookie >> 32,
			  netns_cookie },
	};
}

/* The backend that the client had, if that still holds. */
static __always_inline bool recall_backend(const struct frontend *f,
					   const struct affinity_key *key,
					   struct table t, struct choice *c)
{
	struct affinity *a = bpf_map_lookup_elem(&affinities, key);
	__u64 now = bpf_ktime_get_coarse_ns();

	if (!a || now - a->last_used_ns > f->affinity_timeout_s * NSEC_PER_SEC)
		return false;
	c->slot = a->slot;
	if (!still_names(t, a->backend_id, &c->slot) || !find_backend(c))
		return false;
	a->slot = c->slot;
	a->last_used_ns = now;
	return true;
}

static __always_inline void remember_backend(const struct affinity_key *key,
					     const struct choice *c)
{
	struct affinity a = {
		.last_used_ns = bpf_ktime_get_coarse_ns(),
		.backend_id = c->id,
		.slot = c->slot,
	};

	bpf_map_update_elem(&affinities, key, &a, BPF_ANY);
}

/* The table whose backends a client may have had: the widest that it gets. */
static __always_inline struct table remembered(const struct frontend *f,
					       struct view v, bool widens)
{
	return table_of(widens ? read_view(&f->wider[1]) : v);
}

/*
 * Chooses a backend by a view whose table is not empty. It widens if others may
 * stand in for those of the view.
 */
static __always_inline enum verdict select_from(const struct frontend *f,
						struct view v, bool widens,
						const struct client *client,
						struct choice *c)
{
	struct affinity_key key = { .service = f->service };

	if (f->affinity_timeout_s) {
		key.client = *client->addr;
		if (recall_backend(f, &key, remembered(f, v, widens), c) &&
		    !is_ejected(f, c->backend)) {
			count(affinity);
			return VERDICT_CONTINUE;
		}
	}
	if (widens && f->spill && spills(f, client))
		v = read_view(&f->wider[1]);
	c->slot = choose_slot(v, client);
	if (!find_backend(c))
		return refuse(DROP_NO_BACKEND, f->service);
	if (is_avoided(f, c->backend))
		choose_other(f, v, widens, c);
	if (!c->backend)
		return refuse(DROP_NO_BACKEND, f->service);
	if (f->affinity_timeout_s)
		remember_backend(&key, c);
	return VERDICT_CONTINUE;
}

/* Chooses a backend for a client on this node. */
static __always_inline enum verdict select_internal(const struct frontend *f,
						    const struct client *client,
						    struct choice *c)
{
	struct view v = read_view(&f->internal);

	if (!v.size)
		return refuse(f->flags & FRONTEND_INTERNAL_NO_LOCAL ?
				      DROP_NO_LOCAL_ENDPOINT :
				      DROP_NO_ENDPOINT,
			      f->service);
	return select_from(f, v, f->flags & FRONTEND_INTERNAL_WIDENS, client,
			   c);
}
