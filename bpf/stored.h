/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What makes a promise, and keeping it with the socket itself: slower than in its
 * slot of the promises map, but never full. A promise counts as a connection in
 * flight of its backend until it is broken or forgotten.
 */
#pragma once

#include "addr.h"
#include "answer_time.h"
#include "config.h"
#include "load.h"
#include "select.h"
#include "verdict.h"

/* What is to be promised. */
struct offer {
	const struct addr_port *frontend;
	struct choice choice;
	__u64 cookie; /* of the socket */
	__u64 netns;  /* of the socket */
};

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

/* Of the promises of a socket the one that a backend keeps, or NULL. */
static __always_inline struct promise *
find_promise(struct stored_promises *stored, const struct addr_port *backend)
{
	for (int i = 0; i < STORED_PROMISES; i++)
		if (promises_backend(&stored->promise[i], backend))
			return &stored->promise[i];
	return NULL;
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

/* Keeps a promise with the socket itself: slower, but never full. */
static __always_inline void store_promise(struct bpf_sock_addr *ctx,
					  const struct offer *o)
{
	struct stored_promises *stored = bpf_sk_storage_get(
		&stored_promises, ctx->sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	__u32 i;

	if (!stored) {
		count(promise_lost);
		return;
	}
	count_stored(stored, o->cookie);
	i = stored->next % STORED_PROMISES;
	if (stored->promise[i].backend_id)
		count(promise_replaced);
	else
		count(promise_stored);
	end_promise(&stored->promise[i]);
	write_promise(&stored->promise[i], o);
	stored->next = (stored->next & STORED_COUNTED) | (i + 1);
}

/* The Service has lost the backend. Late answers of it may still come. */
static __always_inline struct backend *break_promise(struct promise *p)
{
	struct backend *b = end_promise(p);

	p->backend_id = 0;
	return b;
}

static __always_inline void break_all(struct stored_promises *stored,
				      __u64 cookie)
{
	for (int i = 0; i < STORED_PROMISES; i++)
		break_promise(&stored->promise[i]);
	uncount_stored(stored, cookie);
}

/* The socket is gone, and what is kept with it will go by itself. */
static __always_inline void end_stored(struct bpf_sock *sk, __u64 cookie)
{
	struct stored_promises *stored;
	struct backend *b;

	if (!may_store(cookie))
		return;
	stored = bpf_sk_storage_get(&stored_promises, sk, NULL, 0);
	if (!stored)
		return;
	b = break_promise(&stored->promise[0]);
	if (b) /* a TCP socket has no other */
		note_closing(b, sk);
	break_all(stored, cookie);
}

/* Drops what was kept with the socket itself; for most there is nothing. */
static __always_inline void forget_stored(struct bpf_sock *sk, __u64 cookie)
{
	struct stored_promises *stored;

	if (!may_store(cookie))
		return;
	stored = bpf_sk_storage_get(&stored_promises, sk, NULL, 0);
	if (!stored)
		return;
	break_all(stored, cookie);
	bpf_sk_storage_delete(&stored_promises, sk);
}
