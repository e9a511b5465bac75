/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What makes a promise, and keeping it with the socket itself: slower than in its
 * slot of the promises map, but never full. A promise counts as a connection in
 * flight of its backend until it is broken or forgotten.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../lb/health.h"
#include "../lb/response_time.h"
#include "../lb/table.h"
#include "../lib/addr.h"
#include "../lib/verdict.h"

/* What is to be promised. */
struct offer {
	const struct addr_port *frontend;
	struct choice choice;
	__u64 cookie; /* of the socket */
	__u64 netns;  /* of the socket */
	enum promise_flag flags;
};

static __always_inline bool has_flag(const struct promise *p,
				     enum promise_flag flag)
{
	return p->backend.pad & flag;
}

static __always_inline void set_flag(struct promise *p, enum promise_flag flag)
{
	p->backend.pad |= flag;
}

static __always_inline void clear_flag(struct promise *p,
				       enum promise_flag flag)
{
	p->backend.pad &= ~flag;
}

/* A broken promise is about no frontend, but still about its backend. */
static __always_inline bool promises_frontend(const struct promise *p,
					      const struct addr_port *frontend)
{
	return p->backend_id && same_addr_port(&p->frontend, frontend);
}

static __always_inline bool promises_backend(const struct promise *p,
					     const struct addr_port *backend)
{
	return same_addr_port(&p->backend, backend);
}

/* Of n promises the one about a frontend; n: none. */
static __always_inline __u32 place_of_frontend(const struct promise *p, __u32 n,
					       const struct addr_port *frontend)
{
	for (__u32 i = 0; i < n; i++)
		if (promises_frontend(&p[i], frontend))
			return i;
	return n;
}

/* Of n promises the one that a backend keeps and that lacks a flag; n: none. */
static __always_inline __u32 place_of_backend(const struct promise *p, __u32 n,
					      const struct addr_port *backend,
					      enum promise_flag without)
{
	for (__u32 i = 0; i < n; i++)
		if (promises_backend(&p[i], backend) &&
		    !has_flag(&p[i], without))
			return i;
	return n;
}

/*
 * Of n promises, a power of two, the first from a place on that is broken or was
 * never made; n: none. So those whose late answers may still come stay longest.
 */
static __always_inline __u32 free_place(const struct promise *p, __u32 n,
					__u32 from)
{
	for (__u32 i = 0; i < n; i++)
		if (!p[(from + i) & (n - 1)].backend_id)
			return (from + i) & (n - 1);
	return n;
}

/* Of n promises, a power of two, the one at a place, or NULL. */
static __always_inline struct promise *promise_at(struct promise *p, __u32 n,
						  __u32 place)
{
	if (place >= n)
		return NULL;
	/* The verifier forgets the comparison where the compiler moves it. */
	asm volatile("" : "+r"(place));
	return &p[place & (n - 1)];
}

/* The same of sockets that ask many frontends. */
STEP __u32 many_of_frontend(const struct many_promises *m,
			    const struct addr_port *frontend)
{
	if (!m || !frontend)
		return MANY_PROMISES;
	return place_of_frontend(m->promise, MANY_PROMISES, frontend);
}

STEP __u32 many_of_backend(const struct many_promises *m,
			   const struct addr_port *backend,
			   enum promise_flag without)
{
	if (!m || !backend)
		return MANY_PROMISES;
	return place_of_backend(m->promise, MANY_PROMISES, backend, without);
}

STEP __u32 many_free(const struct many_promises *m)
{
	if (!m)
		return MANY_PROMISES;
	return free_place(m->promise, MANY_PROMISES, m->next);
}

/*
 * Writes a promise where it is kept. Not by way of the stack: reading at once
 * what was written in other pieces makes the CPU wait.
 */
static __always_inline void write_promise(struct promise *p,
					  const struct offer *o)
{
	p->frontend = *o->frontend;
	p->backend = o->choice.backend->to;
	p->backend.pad = o->flags;
	p->backend_id = o->choice.id;
	p->slot = o->choice.slot;
	p->netns = o->netns;
	backend_opened(o->choice.backend);
}

/*
 * What a promise was about is in flight no more. A broken one was not. Returns its
 * backend, if that is still there.
 */
static __always_inline struct backend *end_promise(const struct promise *p)
{
	if (!p->backend_id)
		return NULL;
	return backend_closed(p->backend_id, &p->backend);
}

/* How many sockets of the slot of a socket keep promises with themselves. */
static __always_inline __u32 *sockets_stored(__u64 cookie)
{
	__u32 slot = (__u32)cookie & promises_mask;
	__u32 chunk_index = slot / COUNTS_PER_CHUNK;
	struct stored_sockets *chunk =
		bpf_map_lookup_elem(&stored_sockets, &chunk_index);

	return chunk ? &chunk->sockets[slot % COUNTS_PER_CHUNK] : NULL;
}

/* May a socket keep promises with itself? To ask it costs more. */
static __always_inline bool may_store(__u64 cookie)
{
	__u32 *sockets = sockets_stored(cookie);

	return !sockets || *sockets;
}

static __always_inline void count_stored(struct stored_promises *stored,
					 __u64 cookie)
{
	__u32 *sockets = sockets_stored(cookie);

	if (!sockets || stored->next & STORED_COUNTED)
		return;
	__sync_fetch_and_add(sockets, 1);
	stored->next |= STORED_COUNTED;
}

/* Only once: while programs are replaced, two see the end of a socket. */
static __always_inline void uncount_stored(struct stored_promises *stored,
					   __u64 cookie)
{
	__u32 *sockets = sockets_stored(cookie);

	if (!sockets || !(stored->next & STORED_COUNTED))
		return;
	stored->next &= ~STORED_COUNTED;
	__sync_fetch_and_add(sockets, -1);
}

/* What a socket keeps with itself, or NULL. */
static __always_inline struct stored_promises *stored_of(void *sk, __u64 cookie)
{
	if (!may_store(cookie))
		return NULL;
	return bpf_sk_storage_get(&stored_promises, sk, NULL, 0);
}

/* The list beyond that, or NULL. */
static __always_inline struct many_promises *
many_of(void *sk, const struct stored_promises *stored)
{
	if (!(stored->next & STORED_MANY))
		return NULL;
	return bpf_sk_storage_get(&many_promises, sk, NULL, 0);
}

/* Does the next promise of a socket go to the list beyond? */
static __always_inline bool needs_many(struct bpf_sock *sk, __u64 cookie)
{
	struct stored_promises *stored = stored_of(sk, cookie);

	return stored && free_place(stored->promise, STORED_PROMISES, 0) >=
				 STORED_PROMISES;
}

/* Where there is room for a promise in the list beyond, or NULL. */
static __always_inline struct promise *
room_of_many(struct bpf_sock *sk, struct stored_promises *stored)
{
	struct many_promises *m = bpf_sk_storage_get(
		&many_promises, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	struct promise *p;
	__u32 i;

	if (!m)
		return NULL;
	stored->next |= STORED_MANY;
	i = many_free(m);
	if (i >= MANY_PROMISES)
		i = m->next % MANY_PROMISES;
	m->next = i + 1;
	p = promise_at(m->promise, MANY_PROMISES, i);
	if (p && p->backend_id) {
		end_promise(p);
		count(promise_replaced);
	}
	return p;
}

/* Where there is room for a promise with the socket itself, or NULL. */
static __always_inline struct promise *
room_of_stored(struct bpf_sock *sk, struct stored_promises *stored)
{
	const __u32 flags = STORED_COUNTED | STORED_MANY;
	__u32 i = free_place(stored->promise, STORED_PROMISES, stored->next);

	if (i >= STORED_PROMISES)
		return room_of_many(sk, stored);
	stored->next = (stored->next & flags) | (i + 1);
	return promise_at(stored->promise, STORED_PROMISES, i);
}

/* Keeps a promise with the socket itself: slower, but seldom full. */
static __always_inline void store_promise(struct bpf_sock_addr *ctx,
					  const struct offer *o)
{
	struct stored_promises *stored = bpf_sk_storage_get(
		&stored_promises, ctx->sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	struct promise *p;

	if (stored)
		count_stored(stored, o->cookie);
	p = stored ? room_of_stored(ctx->sk, stored) : NULL;
	if (!p) {
		count(promise_lost);
		return;
	}
	count(promise_stored);
	write_promise(p, o);
}

/* The Service has lost the backend. Late answers of it may still come. */
static __always_inline struct backend *break_promise(struct promise *p)
{
	struct backend *b = end_promise(p);

	p->backend_id = 0;
	return b;
}

STEP int break_many(struct many_promises *m)
{
	for (int i = 0; m && i < MANY_PROMISES; i++)
		break_promise(&m->promise[i]);
	return 0;
}

static __always_inline void
break_all(struct bpf_sock *sk, struct stored_promises *stored, __u64 cookie)
{
	struct many_promises *m = many_of(sk, stored);

	for (int i = 0; i < STORED_PROMISES; i++)
		break_promise(&stored->promise[i]);
	if (m)
		break_many(m);
	uncount_stored(stored, cookie);
}

/* The socket is gone, and what is kept with it will go by itself. */
static __always_inline void end_stored(struct bpf_sock *sk, __u64 cookie)
{
	struct stored_promises *stored = stored_of(sk, cookie);
	struct backend *b;

	if (!stored)
		return;
	b = break_promise(&stored->promise[0]);
	if (b) /* a TCP socket has no other */
		note_closing(b, sk);
	break_all(sk, stored, cookie);
}

/* Drops what was kept with the socket itself; for most there is nothing. */
static __always_inline void forget_stored(struct bpf_sock *sk, __u64 cookie)
{
	struct stored_promises *stored = stored_of(sk, cookie);

	if (!stored)
		return;
	break_all(sk, stored, cookie);
	bpf_sk_storage_delete(&many_promises, sk);
	bpf_sk_storage_delete(&stored_promises, sk);
}
