/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Balancing where sockets are told where to go: once for a connection, once
 * for an unconnected datagram. Addresses come and go as the hooks' families
 * have them; everything between is written once.
 */
#pragma once

#include <linux/in.h>

#include "affinity.h"
#include "client.h"
#include "config.h"
#include "errno.h"
#include "frontend.h"
#include "promise.h"

/* What a hook returns to the kernel. */
#define SOCK_REFUSE 0
#define SOCK_PROCEED 1

static __always_inline struct addr_port sock_addr4(struct bpf_sock_addr *ctx)
{
	return (struct addr_port){
		.addr = from_ip4(ctx->user_ip4),
		.port = (__be16)ctx->user_port,
		.protocol = ctx->protocol,
	};
}

static __always_inline struct addr_port sock_addr6(struct bpf_sock_addr *ctx)
{
	return (struct addr_port){
		.addr.word = { ctx->user_ip6[0], ctx->user_ip6[1],
			       ctx->user_ip6[2], ctx->user_ip6[3] },
		.port = (__be16)ctx->user_port,
		.protocol = ctx->protocol,
	};
}

static __always_inline void set_sock_addr4(struct bpf_sock_addr *ctx,
					   const struct addr_port *a)
{
	ctx->user_ip4 = a->addr.word[3];
	ctx->user_port = a->port;
}

static __always_inline void set_sock_addr6(struct bpf_sock_addr *ctx,
					   const struct addr_port *a)
{
	ctx->user_ip6[0] = a->addr.word[0];
	ctx->user_ip6[1] = a->addr.word[1];
	ctx->user_ip6[2] = a->addr.word[2];
	ctx->user_ip6[3] = a->addr.word[3];
	ctx->user_port = a->port;
}

static __always_inline bool is_balanced(const struct addr_port *a)
{
	return a->protocol == IPPROTO_TCP || a->protocol == IPPROTO_UDP;
}

/* Is the client one whose packets are balanced instead of its sockets? */
static __always_inline bool is_exempt(struct bpf_sock_addr *ctx)
{
	__u64 cookie;

	if (!pod_devices)
		return false;
	cookie = bpf_get_netns_cookie(ctx);
	return bpf_map_lookup_elem(&exempt_namespaces, &cookie);
}

/* The frontend that a socket means by an address. */
static __always_inline enum verdict socket_frontend(struct bpf_sock_addr *ctx,
						    const struct addr_port *to,
						    struct frontend **frontend)
{
	enum verdict v;

	if (!is_balanced(to))
		return VERDICT_PASS;
	v = find_frontend(ctx, to, frontend);
	if (v != VERDICT_PASS && is_exempt(ctx))
		return VERDICT_PASS;
	if (v == VERDICT_CONTINUE &&
	    (*frontend)->flags & FRONTEND_SOURCE_RANGES)
		return socket_allowed(ctx, *frontend, is_ip4(&to->addr));
	return v;
}

/* A backend for a socket that has none, or none that still holds. */
static __always_inline enum verdict
socket_backend(struct bpf_sock_addr *ctx, const struct addr_port *to,
	       const struct frontend *frontend, struct offer *offer)
{
	struct ip_addr addr;
	struct client client = { &addr, &to->addr };

	offer->frontend = to;
	offer->cookie = bpf_get_socket_cookie(ctx);
	offer->netns = bpf_get_netns_cookie(ctx);
	addr = local_client(offer->netns, is_ip4(&to->addr));
	client.port = offer->cookie;
	return select_internal(frontend, &client, &offer->choice);
}

/* connect(): to becomes the address of a backend. */
static __always_inline enum verdict connect_backend(struct bpf_sock_addr *ctx,
						    struct addr_port *to)
{
	struct frontend *frontend;
	struct offer offer;
	enum verdict v;

	v = socket_frontend(ctx, to, &frontend);
	if (v == VERDICT_PASS)
		forget_promises(ctx);
	if (v != VERDICT_CONTINUE)
		return v;
	if ((v = socket_backend(ctx, to, frontend, &offer)) != VERDICT_CONTINUE)
		return v;
	keep_promise(ctx, &offer);
	count(connect);
	*to = offer.choice.backend->to;
	return VERDICT_CONTINUE;
}

/* Does the Service still have the backend that the socket was promised? */
static __always_inline bool still_holds(struct promise *p, struct table t)
{
	struct choice c = { .slot = p->slot };

	if (!still_names(t, p->backend_id, &c.slot) || !find_backend(&c))
		return false;
	if (!same_addr_port(&c.backend->to, &p->backend))
		return false; /* the ID has come to another backend */
	p->slot = c.slot;
	return true;
}

/*
 * sendmsg() of an unconnected socket: to becomes the address of the backend
 * that the socket had for this frontend before, as long as the Service has it.
 */
static __always_inline enum verdict send_to_backend(struct bpf_sock_addr *ctx,
						    struct addr_port *to)
{
	__u64 cookie = bpf_get_socket_cookie(ctx);
	struct frontend *frontend;
	struct promise *p;
	struct offer offer;
	enum verdict v;

	if ((v = socket_frontend(ctx, to, &frontend)) != VERDICT_CONTINUE)
		return v;
	p = promise_about_frontend(ctx, cookie, to);
	if (p && still_holds(p, table_of(read_view(&frontend->internal)))) {
		count(sendmsg);
		*to = p->backend;
		return VERDICT_CONTINUE;
	}
	if (p)
		break_promise(p);
	if ((v = socket_backend(ctx, to, frontend, &offer)) != VERDICT_CONTINUE)
		return v;
	keep_another_promise(ctx, &offer);
	count(sendmsg);
	*to = offer.choice.backend->to;
	return VERDICT_CONTINUE;
}

/* A peer that is a backend is shown as the frontend the socket asked for. */
static __always_inline enum verdict show_frontend(struct bpf_sock_addr *ctx,
						  struct addr_port *from)
{
	struct promise *p;

	if (!is_balanced(from))
		return VERDICT_PASS;
	p = promise_about_backend(ctx, from);
	if (!p)
		return VERDICT_PASS;
	*from = p->frontend;
	return VERDICT_CONTINUE;
}

/* How a hook ends: the new address is in place, or the caller hears of it. */
static __always_inline int sock_verdict(enum verdict v)
{
	if (v != VERDICT_REFUSE)
		return SOCK_PROCEED;
	bpf_set_retval(-ECONNREFUSED);
	return SOCK_REFUSE;
}
