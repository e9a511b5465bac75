/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Where the kernel refuses programs at tracepoints, a sock_ops program is told what
 * becomes of connections. It runs seven times for each.
 */
#pragma once

#include "../lb/client.h"
#include "../lb/health.h"
#include "../lb/response_time.h"
#include "../lib/kernel.h"
#include "closing.h"
#include "observe.h"
#include "traffic.h"

/* The connection that is told of, if it is one of ours. */
static __always_inline bool find_told(struct bpf_sock_ops *ctx,
				      struct watched *w)
{
	struct bpf_sock *sk = ctx->sk;
	struct tcp_sock *tp = sk ? bpf_skc_to_tcp_sock(sk) : NULL;

	return tp && find_watched(tp, bpf_get_socket_cookie(ctx), w);
}

/* The first SYN is about to leave. */
static __always_inline void connection_begins(struct bpf_sock_ops *ctx)
{
	bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags |
					       BPF_SOCK_OPS_STATE_CB_FLAG |
					       BPF_SOCK_OPS_RTO_CB_FLAG);
}

/* The backend has answered. */
static __always_inline void connection_stands(struct bpf_sock_ops *ctx,
					      struct watched *w)
{
	struct sock *sk = (struct sock *)w->tp;

	if (is_news(w->backend) && !sk->__sk_common.skc_bound_dev_if)
		note_taken(w->backend, w->entry, w->tp,
			   bpf_ktime_get_coarse_ns());
	if (w->backend->is_timed && client_speaks(w->tp))
		note_response(w->backend, measurer(w->entry->netns),
			      ctx->srtt_us >> SRTT_UNIT_SHIFT,
			      RESPONSE_AT_LEAST);
}

static __always_inline void connection_closed(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct tcp_sock *tp = sk ? bpf_skc_to_tcp_sock(sk) : NULL;

	if (tp && is_kernel_socket((struct sock *)tp))
		forget_kernel_socket(tp, bpf_get_socket_cookie(ctx));
}

static __always_inline void watch(struct bpf_sock_ops *ctx)
{
	struct watched w;

	switch (ctx->op) {
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		if (find_told(ctx, &w))
			connection_begins(ctx);
		break;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		if (find_told(ctx, &w))
			connection_stands(ctx, &w);
		break;
	case BPF_SOCK_OPS_STATE_CB:
		if (ctx->args[1] != BPF_TCP_CLOSE)
			break;
		if (find_told(ctx, &w))
			count_error(&w, ((struct sock *)w.tp)->sk_err);
		if (ctx->args[0] == BPF_TCP_SYN_SENT && find_told(ctx, &w))
			connection_failed(&w, ((struct sock *)w.tp)->sk_err,
					  bpf_ktime_get_coarse_ns());
		connection_closed(ctx);
		break;
	case BPF_SOCK_OPS_RTO_CB: /* a SYN, or what follows, is sent again */
		if (ctx->state == BPF_TCP_SYN_SENT && find_told(ctx, &w)) {
			count_repeat(w.entry);
			note_refusal(&w, bpf_ktime_get_coarse_ns());
		}
		break;
	}
}
