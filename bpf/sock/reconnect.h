/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A connected UDP socket whose backend leaves its Service gets another one, as the packets of
 * other clients do. The agent finds the socket among the open files of all processes
 * (destroy.h), takes a descriptor of it by pidfd_getfd(2) and connects it to RECONNECT_ADDRESS.
 * connect4 and connect6 put the frontend of the socket in the place of that.
 *
 * The process may connect the socket elsewhere at the same time. Before these programs ran for the
 * agent, the entry is another one, and they refuse the agent. After that and before the kernel
 * has set the peer, they refuse the process, as often as it tries. If the kernel refuses the
 * agent, the agent closes the connection. The programs do not see AF_UNSPEC, which gives up the peer.
 *
 * While the Service has no endpoint, the peer is the frontend itself, and the socket waits.
 *
 * A socket may have connected to an address before a frontend had it. It has no entry, and
 * connects again in the same way.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../lb/frontend.h"
#include "../lb/table.h"
#include "../lib/addr.h"
#include "../lib/kernel.h"
#include "../lib/verdict.h"
#include "client_addr.h"
#include "socket_nat.h"
#include "socket_storage.h"

/*
 * The limited broadcast address, with port 0. A process may connect a new socket to it, to learn
 * its own address. The kernel refuses the agent there (EACCES), if not these programs answer.
 */
#define RECONNECT_ADDRESS bpf_htonl(0xffffffff)

/* Does the agent connect a socket again? */
static __always_inline bool is_reconnect(struct bpf_sock_addr *ctx,
					 const struct addr_port *to)
{
	return is_connected(ctx) && !to->port && is_ip4(&to->addr) &&
	       to->addr.word[3] == RECONNECT_ADDRESS;
}

/* Has a frontend backends for new clients of the node? */
static __always_inline bool has_backends(const struct frontend *f)
{
	return is_open(f) && table_of(read_view(&f->views[VIEW_INTERNAL])).size;
}

/* Does the Service of a frontend still have the backend of an entry? */
static __always_inline bool service_has(const struct frontend *f,
					const struct socket_entry *e)
{
	struct choice c = { .slot = e->slot };

	return f && still_names(f->members, e->backend_id, &c.slot) &&
	       find_backend(&c) && same_addr_port(&c.backend->to, &e->backend);
}

/* The frontend that new clients find at an address that a socket has asked for, or NULL. */
static __always_inline struct frontend *
frontend_now(const struct addr_port *asked)
{
	struct frontend *f = frontend_at(asked);
	struct address *address;

	if (is_open(f))
		return f;
	address = bpf_map_lookup_elem(&addresses, &asked->addr);
	if (address && address->kind & (ADDRESS_NODE | ADDRESS_LOOPBACK))
		return node_frontend(asked);
	return NULL;
}

/* Does a frontend serve sockets that are older than it? */
static __always_inline bool serves_older(const struct frontend *f)
{
	return has_backends(f) && !(f->flags & FRONTEND_UDP_CLOSE);
}

/*
 * Has the backend left the Service for good, its draining done? The socket asked for an
 * address of the frontend, which may be a former one, or of the node for a NodePort. Whether
 * that still is one does not matter to a connection that stands. An entry that waits is broken
 * once there is a backend for it.
 */
static __noinline bool is_broken(const struct socket_entry *e)
{
	if (is_waiting(e))
		return has_backends(frontend_now(&e->frontend));
	return !service_has(frontend_at(&e->frontend), e) &&
	       !service_has(node_frontend(&e->frontend), e);
}

/* The peer of a socket that is connected. */
static __always_inline void own_peer(const struct bpf_sock *sk,
				     struct addr_port *peer)
{
	__be32 ip4 = sk->dst_ip4;

	/* The compiler would choose which field to read, and the verifier wants to know. */
	asm volatile("" : "+r"(ip4));
	if (sk->family == AF_INET) {
		peer->addr = from_ip4(ip4);
	} else {
		peer->addr.word[0] = sk->dst_ip6[0];
		peer->addr.word[1] = sk->dst_ip6[1];
		peer->addr.word[2] = sk->dst_ip6[2];
		peer->addr.word[3] = sk->dst_ip6[3];
	}
	peer->port = sk->dst_port;
	peer->protocol = IPPROTO_UDP;
	peer->pad = 0;
}

/* Which sockets connect again? */
enum reconnect {
	RECONNECT_NONE, /* the process has connected the socket elsewhere, or its backend came back */
	RECONNECT_LOST, /* its backend has left */
	RECONNECT_OLDER, /* it is older than the frontend at its peer, if there is one */
};

/* The frontend of a socket that is to connect again. */
static __noinline enum reconnect
frontend_to_reconnect(struct bpf_sock_addr *ctx, struct addr_port *to)
{
	struct socket_entry *e;
	struct addr_port peer;

	own_peer(ctx->sk, &peer);
	e = entry_to_backend(ctx, &peer, 0);
	if (!e) {
		*to = peer;
		return RECONNECT_OLDER;
	}
	if (!has_flag(e, ENTRY_CONNECTED) || has_flag(e, ENTRY_UDP_CLOSE) ||
	    !is_broken(e))
		return RECONNECT_NONE;
	*to = e->frontend;
	to->pad = 0;
	return RECONNECT_LOST;
}

/* Has the kernel not connected the socket of an entry again yet, or refused it? */
static __always_inline bool has_not_reconnected(const struct socket_entry *e,
						const struct addr_port *peer)
{
	return has_flag(e, ENTRY_RECONNECTED) && !entry_leads_to(e, peer);
}

/* Does the agent connect a socket at the moment, or has the kernel refused it? */
static __noinline bool is_reconnecting(struct bpf_sock_addr *ctx)
{
	__u64 cookie = bpf_get_socket_cookie(ctx);
	struct socket_entry *e = slot_entry(cookie);
	struct stored_entries *stored;
	struct addr_port peer;

	if (!e) {
		stored = stored_of(ctx->sk, cookie);
		e = stored ? &stored->entry[0] : NULL;
	}
	own_peer(ctx->sk, &peer);
	return e && has_not_reconnected(e, &peer);
}

/* The entry of a UDP socket that connects to a frontend without a backend. */
static __always_inline enum verdict wait_for_backend(struct bpf_sock_addr *ctx,
						     const struct addr_port *to,
						     struct new_entry *new)
{
	*new = (struct new_entry){
		.frontend = to,
		.cookie = bpf_get_socket_cookie(ctx),
		.netns = bpf_get_netns_cookie(ctx),
	};
	return VERDICT_CONTINUE;
}
