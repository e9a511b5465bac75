/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Watching connections: what the kernel learns of a backend by the sockets that
 * connect to it. Of other sockets nothing is asked.
 */
#pragma once

#include "answer_time.h"
#include "errno.h"
#include "health.h"
#include "promise.h"

struct sock {
	int sk_err;
} __attribute__((preserve_access_index));

#define TCP_STATE_ESTABLISHED 1
#define TCP_STATE_SYN_SENT 2
#define TCP_STATE_CLOSE 7

/* ctx->srtt_us is in eighths of a microsecond. */
#define SRTT_UNIT_SHIFT 3

/* A connection that was sent to a backend. */
struct watched {
	struct bpf_sock *sk; /* may be NULL */
	struct promise *promise;
	struct backend *backend;
};

/* The promise of a TCP socket, which has one at most, or NULL. */
static __always_inline struct promise *tcp_promise(struct bpf_sock_ops *ctx,
						   struct bpf_sock *sk)
{
	__u64 cookie = bpf_get_socket_cookie(ctx);
	struct promise *p = slot_promise(cookie);
	struct stored_promises *stored;

	if (p || !sk || !may_store(cookie))
		return p;
	stored = bpf_sk_storage_get(&stored_promises, sk, NULL, 0);
	return stored ? &stored->promise[0] : NULL;
}

/* Fills in what a socket is about; false if it is none of ours. */
static __always_inline bool find_watched(struct bpf_sock_ops *ctx,
					 struct watched *w)
{
	__u32 id;

	w->sk = ctx->sk;
	w->promise = tcp_promise(ctx, w->sk);
	if (!w->promise || !w->promise->backend_id)
		return false;
	id = w->promise->backend_id;
	w->backend = bpf_map_lookup_elem(&backends, &id);
	return w->backend &&
	       same_addr_port(&w->backend->to, &w->promise->backend);
}

static __always_inline void watch_more(struct bpf_sock_ops *ctx, int flags)
{
	bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags | flags);
}

/* The first SYN is about to leave. */
static __always_inline void connection_begins(struct bpf_sock_ops *ctx,
					      struct watched *w)
{
	watch_more(ctx, BPF_SOCK_OPS_STATE_CB_FLAG | BPF_SOCK_OPS_RTO_CB_FLAG);
}

/* The backend has answered. */
static __always_inline void connection_stands(struct bpf_sock_ops *ctx,
					      struct watched *w)
{
	note_success(w->backend);
	if (w->backend->answer_at_ns) /* no answer is faster */
		note_wait(w->backend, ctx->srtt_us >> SRTT_UNIT_SHIFT);
}

/* Did a connection end by what the network said, or never said? */
static __always_inline bool is_network_error(struct bpf_sock *sk)
{
	struct sock *full = sk ? (void *)bpf_skc_to_tcp_sock(sk) : NULL;
	int error = full ? full->sk_err : 0;

	return error == ECONNREFUSED || error == ETIMEDOUT ||
	       error == EHOSTUNREACH || error == ENETUNREACH;
}

/* The backend has refused or never answered, or the client has given up. */
static __always_inline void connection_failed(struct bpf_sock_ops *ctx,
					      struct watched *w)
{
	if (is_network_error(w->sk))
		note_failure(w->backend);
	break_promise(w->promise);
}

static __always_inline void watch(struct bpf_sock_ops *ctx)
{
	struct watched w;

	switch (ctx->op) {
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		if (find_watched(ctx, &w))
			connection_begins(ctx, &w);
		break;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		if (find_watched(ctx, &w))
			connection_stands(ctx, &w);
		break;
	case BPF_SOCK_OPS_STATE_CB:
		if (ctx->args[0] == TCP_STATE_SYN_SENT &&
		    ctx->args[1] == TCP_STATE_CLOSE && find_watched(ctx, &w))
			connection_failed(ctx, &w);
		break;
	case BPF_SOCK_OPS_RTO_CB: /* a SYN, or what follows, is sent again */
		if (ctx->state == TCP_STATE_SYN_SENT && find_watched(ctx, &w))
			note_failure(w.backend);
		break;
	}
}
