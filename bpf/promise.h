/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What a socket was promised: it asked for a frontend and talks to a backend.
 * Needed to show the frontend as its peer, and to stay with the backend.
 *
 * Every hook that comes here runs under the lock of its socket, so a promise
 * has one writer; only the claim of a slot is a race, between sockets.
 */
#pragma once

#include "config.h"
#include "stored.h"

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

/* The promise of a socket about a frontend, or NULL: there is one at most. */
static __always_inline struct promise *
promise_about_frontend(struct bpf_sock_addr *ctx, __u64 cookie,
		       const struct addr_port *frontend)
{
	struct promise *p = slot_promise(cookie);
	struct stored_promises *stored;

	if (p && promises_frontend(p, frontend))
		return p;
	if (!may_store(cookie))
		return NULL;
	stored = bpf_sk_storage_get(&stored_promises, ctx->sk, NULL, 0);
	if (!stored)
		return NULL;
	for (int i = 0; i < STORED_PROMISES; i++)
		if (promises_frontend(&stored->promise[i], frontend))
			return &stored->promise[i];
	return NULL;
}

/* The promise of a socket that a backend keeps, or NULL. */
static __always_inline struct promise *
promise_about_backend(struct bpf_sock_addr *ctx,
		      const struct addr_port *backend)
{
	__u64 cookie = bpf_get_socket_cookie(ctx);
	struct promise *p = slot_promise(cookie);
	struct stored_promises *stored;

	if (p && promises_backend(p, backend))
		return p;
	if (!may_store(cookie))
		return NULL;
	stored = bpf_sk_storage_get(&stored_promises, ctx->sk, NULL, 0);
	return stored ? find_promise(stored, backend) : NULL;
}

/*
 * Claims the slot of a socket, and ends the promise that it holds of the same
 * socket; false if another socket has it.
 */
static __always_inline bool claim_slot(struct promise_slot *slot, __u64 cookie)
{
	if (slot->owner == cookie) {
		end_promise(&slot->promise);
		return true;
	}
	return !slot->owner &&
	       __sync_val_compare_and_swap(&slot->owner, 0, cookie) == 0;
}

/* Keeps the only promise of a socket, in place of what it had. */
static __always_inline void keep_promise(struct bpf_sock_addr *ctx,
					 const struct offer *o)
{
	struct promise_slot *slot = promise_slot_of(o->cookie);

	if (slot && claim_slot(slot, o->cookie)) {
		write_promise(&slot->promise, o);
		return;
	}
	forget_stored(ctx->sk, o->cookie);
	store_promise(ctx, o);
}

/*
 * Keeps one more promise of a socket: the earlier ones stay, since answers to
 * what it sent before may still come.
 */
static __always_inline void keep_another_promise(struct bpf_sock_addr *ctx,
						 const struct offer *o)
{
	struct promise_slot *slot = promise_slot_of(o->cookie);

	if (slot && slot->owner != o->cookie && claim_slot(slot, o->cookie))
		write_promise(&slot->promise, o);
	else
		store_promise(ctx, o);
}

/* The promise in the slot of a socket ends. Returns its backend, or NULL. */
static __always_inline struct backend *forget_promise(__u64 cookie)
{
	struct promise_slot *slot = promise_slot_of(cookie);
	struct backend *b;

	if (!slot || slot->owner != cookie)
		return NULL;
	b = end_promise(&slot->promise);
	slot->owner = 0;
	return b;
}

/* The socket is gone, and what it was promised with it. */
static __always_inline void forget_socket(struct bpf_sock *sk)
{
	__u64 cookie = bpf_get_socket_cookie(sk);
	struct backend *b = forget_promise(cookie);

	if (b)
		note_closing(b, sk);
	end_stored(sk, cookie);
}

/*
 * The socket connects elsewhere. Were it to a backend that it had been promised
 * before, it would still be shown the frontend.
 */
static __always_inline void forget_promises(struct bpf_sock_addr *ctx)
{
	__u64 cookie = bpf_get_socket_cookie(ctx);

	forget_promise(cookie);
	forget_stored(ctx->sk, cookie);
}
