/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Balancing where sockets are told where to go: once for a connection, once
 * for an unconnected datagram. Addresses come and go as the hooks' families
 * have them; everything between is written once.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../lb/client.h"
#include "../lb/frontend.h"
#include "../lb/health.h"
#include "../lb/select.h"
#include "../lb/table.h"
#include "../lib/addr.h"
#include "../lib/verdict.h"
#include "client_addr.h"
#include "reconnect.h"
#include "shared_port.h"
#include "socket_nat.h"
#include "socket_storage.h"

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

/*
 * To the kernel, a destination of :: means loopback, and so does 0.0.0.0 unless the
 * socket has an address of its own: then it means that.
 */
static __always_inline void resolve_unspecified(struct bpf_sock_addr *ctx,
						struct addr_port *to)
{
	__be32 own;

	if (!is_unspecified(&to->addr))
		return;
	own = is_ip4(&to->addr) ? ctx->sk->src_ip4 : 0;
	to->addr = own ? from_ip4(own) : loopback(&to->addr);
}

/*
 * The frontend that a socket means by an address. connect() of a datagram socket
 * sends nothing: often it only asks which address the socket would have. So it passes
 * where there is no frontend, and waits for one if only Services have the address.
 */
static __always_inline enum verdict socket_frontend(struct bpf_sock_addr *ctx,
						    const struct addr_port *to,
						    bool sends,
						    struct frontend **frontend)
{
	enum drop_reason why;
	enum verdict v;

	if (!is_balanced(to))
		return VERDICT_PASS;
	v = find_frontend(ctx, to, frontend, &why);
	if (v != VERDICT_PASS && is_exempt(ctx))
		return VERDICT_PASS;
	if (v == VERDICT_REFUSE)
		return sends ? refuse(why, 0, NULL, 0) : VERDICT_WAIT;
	if (v == VERDICT_CONTINUE &&
	    (*frontend)->flags & FRONTEND_SOURCE_RANGES)
		return socket_allowed(ctx, *frontend, is_ip4(&to->addr));
	return v;
}

/*
 * A backend for a socket that has none, or none that is still valid. A steady choice
 * is the same each time, as long as the table is.
 */
static __always_inline enum verdict
socket_backend(struct bpf_sock_addr *ctx, const struct addr_port *to,
	       const struct frontend *frontend, bool steady,
	       struct new_entry *new)
{
	struct ip_addr addr;
	struct client client = { &addr, &to->addr, .on_node = true };

	new->frontend = to;
	new->cookie = bpf_get_socket_cookie(ctx);
	new->netns = bpf_get_netns_cookie(ctx);
	new->flags = 0;
	addr = local_client(new->netns, is_ip4(&to->addr));
	client.port = new->cookie;
	client.steady = steady;
	if (steady)
		client.port ^= (__u64)frontend_hash(&frontend->at) << 32;
	return select_internal(frontend, &client, &new->choice);
}

/* Slots that are looked at for a backend whose answers are told from others. */
#define APART_TRIES 16

/*
 * May answers of a backend be taken for others? A connected socket shares them with another one
 * that has the same port and peer. Others cannot tell those of two frontends apart.
 */
static __always_inline bool is_mistaken(struct bpf_sock_addr *ctx,
					const struct backend *b, bool connects)
{
	return connects ? other_with_peer(ctx, &b->to) != OTHER_NONE :
			  entry_to_backend(ctx, &b->to, 0) != NULL;
}

/*
 * Chooses another backend of the view where answers of the chosen one may be mistaken, unless
 * a hash or session affinity wants just that one. 0: those of the choice may be, too.
 */
static __noinline int choose_apart(struct bpf_sock_addr *ctx,
				   const struct frontend *f, struct choice *c,
				   bool connects)
{
	struct view v = read_view(&f->views[VIEW_INTERNAL]);
	struct table t = table_of(v);
	struct choice other = *c;

	if (!is_mistaken(ctx, c->backend, connects))
		return 1;
	/* The agent may have emptied the view since the choice. */
	if (f->affinity_timeout_s || is_hashed(v) || !t.size)
		return 0;
	for (int i = 0; i < APART_TRIES; i++) {
		if (++other.slot - t.offset >= t.size)
			other.slot = t.offset;
		if (!find_backend(&other) ||
		    (f->flags & FRONTEND_PASSIVE_HEALTH &&
		     other.backend->ejection) ||
		    is_mistaken(ctx, other.backend, connects))
			continue;
		*c = other;
		return 1;
	}
	return 0;
}

/* connect(): to becomes the address of a backend, or stays while the socket waits for one. */
static __always_inline enum verdict connect_backend(struct bpf_sock_addr *ctx,
						    struct addr_port *to)
{
	enum reconnect again = RECONNECT_NONE;
	struct frontend *frontend = NULL;
	struct new_entry new;
	enum verdict v;
	bool waits;

	if (is_reconnect(ctx, to)) {
		again = frontend_to_reconnect(ctx, to);
		if (!again)
			return VERDICT_REFUSE;
	} else if (is_connected(ctx) && is_reconnecting(ctx)) {
		return VERDICT_TAKEN;
	}
	resolve_unspecified(ctx, to);
	v = socket_frontend(ctx, to, to->protocol == IPPROTO_TCP, &frontend);
	if (again == RECONNECT_OLDER &&
	    (v != VERDICT_CONTINUE || !serves_older(frontend)))
		return VERDICT_REFUSE;
	/* Others balance the packets of a socket that passes by a frontend. */
	waits = v == VERDICT_WAIT ||
		(again && !(v == VERDICT_PASS && frontend) &&
		 !has_backends(frontend));
	if (v == VERDICT_PASS && !waits) {
		if (may_share_port(ctx) &&
		    other_with_peer(ctx, to) == OTHER_BY_SERVICE)
			return VERDICT_TAKEN;
		delete_entries(ctx);
	}
	if (v != VERDICT_CONTINUE && !waits)
		return again && v == VERDICT_PASS ? VERDICT_CONTINUE : v;
	v = waits ? wait_for_backend(ctx, to, &new) :
		    socket_backend(ctx, to, frontend, false, &new);
	if (v != VERDICT_CONTINUE)
		return v;
	if (!waits && may_share_port(ctx) &&
	    !choose_apart(ctx, frontend, &new.choice, true))
		return VERDICT_TAKEN;
	new.flags = ENTRY_CONNECTED;
	if (again)
		new.flags |= ENTRY_RECONNECTED;
	if (!waits && to->protocol == IPPROTO_TCP &&
	    has_failed(new.choice.backend))
		new.flags |= ENTRY_AWAITED;
	if (!waits && frontend->flags & FRONTEND_UDP_CLOSE)
		new.flags |= ENTRY_UDP_CLOSE;
	add_entry(ctx, &new);
	if (again)
		count(socket_reconnected);
	if (waits)
		return VERDICT_CONTINUE;
	count_connection(frontend->service, new.choice.backend);
	count(connect);
	*to = new.choice.backend->to;
	return VERDICT_CONTINUE;
}

/*
 * Does an entry keep its backend? One in use does while the Service has the backend, as
 * flows do. After a silence the view decides.
 */
static __always_inline bool entry_is_valid(struct socket_entry *e,
					   const struct frontend *f)
{
	struct table t = table_of(read_view(&f->views[VIEW_INTERNAL]));
	struct choice c = { .slot = e->slot };

	if (!slot_names(t, e->backend_id, c.slot) && is_in_use(e))
		t = f->members;
	if (!still_names(t, e->backend_id, &c.slot) || !find_backend(&c))
		return false;
	if (!same_addr_port(&c.backend->to, &e->backend))
		return false; /* the ID has come to another backend */
	e->slot = c.slot;
	return true;
}

/*
 * sendmsg() of an unconnected socket: to becomes the address of the backend
 * that the socket had for this frontend before, as long as its entry is valid.
 */
static __always_inline enum verdict send_to_backend(struct bpf_sock_addr *ctx,
						    struct addr_port *to)
{
	__u64 cookie = bpf_get_socket_cookie(ctx);
	struct frontend *frontend;
	struct socket_entry *e;
	struct new_entry new;
	enum verdict v;
	bool has;

	resolve_unspecified(ctx, to);
	has = has_entries(ctx, cookie);
	v = socket_frontend(ctx, to, true, &frontend);
	if (v == VERDICT_PASS && has)
		ask_directly(ctx, to);
	if (v != VERDICT_CONTINUE)
		return v;
	e = has ? entry_for_frontend(ctx, cookie, to) : NULL;
	if (e && entry_is_valid(e, frontend)) {
		note_use(e);
		speak(ctx, e);
		count(sendmsg);
		*to = e->backend;
		return VERDICT_CONTINUE;
	}
	if (e)
		retire_entry(e);
	/* Of many entries one may make room: then its backend is chosen again. */
	v = socket_backend(ctx, to, frontend, needs_many(ctx->sk, cookie),
			   &new);
	if (v != VERDICT_CONTINUE)
		return v;
	choose_apart(ctx, frontend, &new.choice, false);
	silence(ctx, &new.choice.backend->to);
	add_another_entry(ctx, &new);
	count_connection(frontend->service, new.choice.backend);
	count(sendmsg);
	*to = new.choice.backend->to;
	return VERDICT_CONTINUE;
}

/* A peer that is a backend is shown as the frontend the socket asked for. */
static __always_inline enum verdict show_frontend(struct bpf_sock_addr *ctx,
						  struct addr_port *from)
{
	struct socket_entry *e;

	if (!is_balanced(from))
		return VERDICT_PASS;
	e = entry_to_backend(ctx, from, ENTRY_SILENT);
	if (!e)
		return VERDICT_PASS;
	note_use(e);
	*from = e->frontend;
	return VERDICT_CONTINUE;
}

/* How a hook ends: the new address is in place, or the caller hears of it. */
static __always_inline int sock_verdict(enum verdict v)
{
	if (v != VERDICT_REFUSE && v != VERDICT_TAKEN)
		return SOCK_PROCEED;
	bpf_set_retval(v == VERDICT_TAKEN ? -EADDRNOTAVAIL : -ECONNREFUSED);
	return SOCK_REFUSE;
}
