/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What a socket was promised: it asked for a frontend and talks to a backend.
 * Needed to show the frontend as its peer, and to stay with the backend.
 *
 * Every hook that comes here runs under the lock of its socket, so a promise
 * has one writer; only the claim of a slot is a race, between sockets.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../lb/response_time.h"
#include "socket_storage.h"

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

/* Of what a socket keeps with itself, the promise about a frontend, or NULL. */
static __always_inline struct promise *
stored_about_frontend(void *sk, struct stored_promises *stored,
		      const struct addr_port *frontend)
{
	__u32 i = place_of_frontend(stored->promise, STORED_PROMISES, frontend);
	struct many_promises *m;

	if (i < STORED_PROMISES)
		return promise_at(stored->promise, STORED_PROMISES, i);
	m = many_of(sk, stored);
	if (!m)
		return NULL;
	i = many_of_frontend(m, frontend);
	return promise_at(m->promise, MANY_PROMISES, i);
}

/* Of what a socket keeps with itself, the promise that a backend keeps, or NULL. */
static __always_inline struct promise *
stored_about_backend(void *sk, struct stored_promises *stored,
		     const struct addr_port *backend, enum promise_flag without)
{
	__u32 i = place_of_backend(stored->promise, STORED_PROMISES, backend,
				   without);
	struct many_promises *m;

	if (i < STORED_PROMISES)
		return promise_at(stored->promise, STORED_PROMISES, i);
	m = many_of(sk, stored);
	if (!m)
		return NULL;
	i = many_of_backend(m, backend, without);
	return promise_at(m->promise, MANY_PROMISES, i);
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
	stored = stored_of(ctx->sk, cookie);
	return stored ? stored_about_frontend(ctx->sk, stored, frontend) : NULL;
}

/* The promise of a socket that a backend keeps and that lacks a flag, or NULL. */
static __always_inline struct promise *
promise_about_backend(struct bpf_sock_addr *ctx,
		      const struct addr_port *backend,
		      enum promise_flag without)
{
	__u64 cookie = bpf_get_socket_cookie(ctx);
	struct promise *p = slot_promise(cookie);
	struct stored_promises *stored;

	if (p && promises_backend(p, backend) && !has_flag(p, without))
		return p;
	stored = stored_of(ctx->sk, cookie);
	return stored ?
		       stored_about_backend(ctx->sk, stored, backend, without) :
		       NULL;
}

/*
 * Answers of a backend are shown as those of one frontend at the most: the one by
 * which the socket asked last. From now on it is none of those that it has.
 */
static __always_inline void silence(struct bpf_sock_addr *ctx,
				    const struct addr_port *backend)
{
	struct promise *p = promise_about_backend(ctx, backend, PROMISE_SILENT);

	if (p)
		set_flag(p, PROMISE_SILENT);
}

/*
 * The socket asks an address that is no frontend's: answers of a backend are its own.
 * What a connected IPv6 socket sends to its IPv4 peer looks the same.
 */
static __always_inline void ask_directly(struct bpf_sock_addr *ctx,
					 const struct addr_port *to)
{
	struct promise *p = promise_about_backend(ctx, to, PROMISE_SILENT);

	if (p && !has_flag(p, PROMISE_CONNECTED))
		set_flag(p, PROMISE_SILENT);
}

/* The socket asks by a promise that it has: answers are of its frontend. */
static __always_inline void speak(struct bpf_sock_addr *ctx, struct promise *p)
{
	if (!has_flag(p, PROMISE_SILENT))
		return;
	silence(ctx, &p->backend);
	clear_flag(p, PROMISE_SILENT);
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

	forget_stored(ctx->sk, o->cookie);
	if (slot && claim_slot(slot, o->cookie))
		write_promise(&slot->promise, o);
	else
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

/*
 * May a socket have promises? Most that send to no Service have none, and nothing more
 * is asked of them. connect() with AF_UNSPEC has no hook: this is the next that a
 * datagram socket does, and it shows that it has no peer any more. What it was
 * promised with that is over.
 */
static __always_inline bool has_promises(struct bpf_sock_addr *ctx,
					 __u64 cookie)
{
	struct promise *p = slot_promise(cookie);
	struct stored_promises *stored;

	if (!ctx->sk || ctx->sk->state == BPF_TCP_ESTABLISHED)
		return true;
	if (p && has_flag(p, PROMISE_CONNECTED))
		forget_promise(cookie);
	if (p)
		return true;
	stored = stored_of(ctx->sk, cookie);
	if (!stored)
		return false;
	if (has_flag(&stored->promise[0], PROMISE_CONNECTED)) {
		break_promise(&stored->promise[0]);
		stored->promise[0].backend.pad = PROMISE_SILENT;
	}
	return true;
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
