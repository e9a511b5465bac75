/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Watching connections: what the kernel learns of a backend by the sockets that
 * connect to it. Of other sockets nothing is asked.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../lb/client.h"
#include "../lb/health.h"
#include "../lb/response_time.h"
#include "../lib/addr.h"
#include "../lib/kernel.h"
#include "socket_nat.h"
#include "socket_storage.h"

/* ctx->srtt_us is in eighths of a microsecond. */
#define SRTT_UNIT_SHIFT 3

/* A connection that was sent to a backend. */
struct watched {
	struct bpf_sock *sk; /* may be NULL */
	struct socket_entry *entry;
	struct backend *backend;
};

/* The entry of a TCP socket, which has one at most, or NULL. */
static __always_inline struct socket_entry *tcp_entry(struct bpf_sock_ops *ctx,
						      struct bpf_sock *sk)
{
	__u64 cookie = bpf_get_socket_cookie(ctx);
	struct socket_entry *e = slot_entry(cookie);
	struct stored_entries *stored;

	if (e || !sk || !may_store(cookie))
		return e;
	stored = bpf_sk_storage_get(&stored_entries, sk, NULL, 0);
	return stored ? &stored->entry[0] : NULL;
}

/* Fills in what a socket is about; false if it is none of ours. */
static __always_inline bool find_watched(struct bpf_sock_ops *ctx,
					 struct watched *w)
{
	__u32 id;

	w->sk = ctx->sk;
	w->entry = tcp_entry(ctx, w->sk);
	if (!w->entry || !w->entry->backend_id)
		return false;
	id = w->entry->backend_id;
	w->backend = bpf_map_lookup_elem(&backends, &id);
	return w->backend &&
	       same_addr_port(&w->backend->to, &w->entry->backend);
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

/* The client, as choices know it. */
static __always_inline __u32 watched_client(const struct watched *w)
{
	struct ip_addr addr =
		local_client(w->entry->netns, is_ip4(&w->entry->frontend.addr));

	return client_id(&addr, true);
}

/*
 * Does it say something about the backend that a socket has got no answer? Not if
 * the program has seen to it that its SYN goes elsewhere or not far, or that the
 * answer is dropped.
 */
static __noinline bool has_vote(struct bpf_sock *sk)
{
	struct inet_sock *inet;
	struct ipv6_pinfo *ip6;

	if (sk->bound_dev_if)
		return false;
	inet = (void *)bpf_skc_to_tcp_sock(sk);
	if (!inet || !kernel_readable)
		return true;
	if (BPF_CORE_READ((struct sock *)inet, sk_filter) ||
	    BPF_CORE_READ(inet, uc_ttl) >= 0)
		return false;
	if (!bpf_core_field_exists(inet->pinet6)) /* a kernel without IPv6 */
		return true;
	ip6 = BPF_CORE_READ(inet, pinet6);
	return !ip6 || BPF_CORE_READ(ip6, hop_limit) < 0;
}

/* Does the client of a socket speak for others, too? */
static __noinline bool client_speaks(struct bpf_sock *sk)
{
	struct sock *full = (void *)bpf_skc_to_tcp_sock(sk);

	return !full || !kernel_readable || speaks_for_others(full);
}

/* The backend did not take the connection. */
static __always_inline void note_refusal(struct watched *w)
{
	if (w->sk && has_vote(w->sk))
		note_failure(w->backend, watched_client(w),
			     client_speaks(w->sk));
}

/* The backend took the connection. */
static __always_inline void note_taken(struct watched *w)
{
	if (!w->sk || w->sk->bound_dev_if || !is_news(w->backend))
		return;
	if (client_speaks(w->sk))
		note_success(w->backend);
	else
		note_own_success(w->backend, watched_client(w));
}

/* The backend has answered. */
static __always_inline void connection_stands(struct bpf_sock_ops *ctx,
					      struct watched *w)
{
	note_taken(w);
	if (w->backend->is_timed && w->sk && client_speaks(w->sk))
		note_response(w->backend, measurer(w->entry->netns),
			      ctx->srtt_us >> SRTT_UNIT_SHIFT,
			      RESPONSE_AT_LEAST);
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
		note_refusal(w);
	retire_entry(w->entry);
}

/*
 * The socket is closed. Of those of processes sock_release tells earlier; of those
 * that the kernel makes for itself, such as the ones below a Multipath TCP socket,
 * nothing else does.
 */
static __always_inline void connection_closed(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct sock *full = sk ? (void *)bpf_skc_to_tcp_sock(sk) : NULL;
	__u64 cookie = bpf_get_socket_cookie(ctx);
	struct stored_entries *stored;

	if (!full || !BPF_CORE_READ_BITFIELD(full, sk_kern_sock))
		return;
	delete_entry(cookie);
	stored = stored_of(sk, cookie);
	if (stored)
		retire_all(sk, stored, cookie);
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
		if (ctx->args[1] != BPF_TCP_CLOSE)
			break;
		if (ctx->args[0] == BPF_TCP_SYN_SENT && find_watched(ctx, &w))
			connection_failed(ctx, &w);
		connection_closed(ctx);
		break;
	case BPF_SOCK_OPS_RTO_CB: /* a SYN, or what follows, is sent again */
		if (ctx->state == BPF_TCP_SYN_SENT && find_watched(ctx, &w))
			note_refusal(&w);
		break;
	}
}
