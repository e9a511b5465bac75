/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What a socket was promised: it asked for a frontend and talks to a backend.
 * Needed to show the frontend as its peer, and to stay with the backend.
 *
 * Every hook that comes here runs under the lock of its socket, so a promise
 * has one writer; only the claim of a slot is a race, between sockets.
 */
#pragma once

#include "addr.h"
#include "config.h"
#include "select.h"
#include "verdict.h"

/* What is to be promised. */
struct offer {
	const struct addr_port *frontend;
	struct choice choice;
	__u64 netns; /* of the socket */
};

static __always_inline struct promise_slot *promise_slot_of(__u64 cookie)
{
	__u32 i = (__u32)cookie & promises_mask;

	return bpf_map_lookup_elem(&promises, &i);
}

/* The slot of the socket, if it is its own. */
static __always_inline struct promise *slot_promise(__u64 cookie)
{
	struct promise_slot *slot = promise_slot_of(cookie);

	return slot && slot->owner == cookie ? &slot->promise : NULL;
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

/* The promise of a socket about a frontend, or NULL: there is one at most. */
static __always_inline struct promise *
promise_about_frontend(struct bpf_sock_addr *ctx, __u64 cookie,
		       const struct addr_port *frontend)
{
	struct promise *p = slot_promise(cookie);
	struct stored_promises *stored;

	if (p && promises_frontend(p, frontend))
		return p;
	stored = bpf_sk_storage_get(&stored_promises, ctx->sk, NULL, 0);
	if (!stored)
		return NULL;
	for (int i = 0; i < STORED_PROMISES; i++)
		if (promises_frontend(&stored->promise[i], frontend))
			return &stored->promise[i];
	return NULL;
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

/* The promise of a socket that a backend keeps, or NULL. */
static __always_inline struct promise *
promise_about_backend(struct bpf_sock_addr *ctx,
		      const struct addr_port *backend)
{
	struct promise *p = slot_promise(bpf_get_socket_cookie(ctx));
	struct stored_promises *stored;

	if (p && promises_backend(p, backend))
		return p;
	stored = bpf_sk_storage_get(&stored_promises, ctx->sk, NULL, 0);
	return stored ? find_promise(stored, backend) : NULL;
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
	i = stored->next % STORED_PROMISES;
	if (stored->promise[i].backend_id)
		count(promise_replaced);
	else
		count(promise_stored);
	write_promise(&stored->promise[i], o);
	stored->next = i + 1;
}

/* Drops what was kept with the socket itself; for most there is nothing. */
static __always_inline void forget_stored(struct bpf_sock_addr *ctx)
{
	if (bpf_sk_storage_get(&stored_promises, ctx->sk, NULL, 0))
		bpf_sk_storage_delete(&stored_promises, ctx->sk);
}

/* Claims the slot of a socket; false if another socket has it. */
static __always_inline bool claim_slot(struct promise_slot *slot, __u64 cookie)
{
	return slot->owner == cookie ||
	       (!slot->owner &&
		__sync_val_compare_and_swap(&slot->owner, 0, cookie) == 0);
}

/* Keeps the only promise of a socket, in place of what it had. */
static __always_inline void keep_promise(struct bpf_sock_addr *ctx,
					 const struct offer *o)
{
	__u64 cookie = bpf_get_socket_cookie(ctx);
	struct promise_slot *slot = promise_slot_of(cookie);

	if (slot && claim_slot(slot, cookie)) {
		write_promise(&slot->promise, o);
		return;
	}
	forget_stored(ctx);
	store_promise(ctx, o);
}

/*
 * Keeps one more promise of a socket: the earlier ones stay, since answers to
 * what it sent before may still come.
 */
static __always_inline void keep_another_promise(struct bpf_sock_addr *ctx,
						 __u64 cookie,
						 const struct offer *o)
{
	struct promise_slot *slot = promise_slot_of(cookie);

	if (slot && slot->owner != cookie && claim_slot(slot, cookie))
		write_promise(&slot->promise, o);
	else
		store_promise(ctx, o);
}

/* The Service has lost the backend. Late answers of it may still come. */
static __always_inline void break_promise(struct promise *p)
{
	p->backend_id = 0;
}

/* The socket is gone, and its promise with it. */
static __always_inline void forget_promise(__u64 cookie)
{
	struct promise_slot *slot = promise_slot_of(cookie);

	if (slot && slot->owner == cookie)
		slot->owner = 0;
}

/*
 * The socket connects elsewhere. Were it to a backend that it had been promised
 * before, it would still be shown the frontend.
 */
static __always_inline void forget_promises(struct bpf_sock_addr *ctx)
{
	forget_promise(bpf_get_socket_cookie(ctx));
	forget_stored(ctx);
}
