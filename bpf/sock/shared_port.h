/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * UDP sockets of one network namespace may share a source port, by SO_REUSEADDR or
 * SO_REUSEPORT. If two of them connect to one peer, the kernel gives all answers to one,
 * and tells neither. Clients of Services do not know which peers they get. So connect()
 * asks the kernel for a socket that has the tuple already.
 *
 * The kernel finds a connected socket by its own address only. An unbound socket gets that
 * from its route, after this hook: then it may be the first address of any device. Other
 * addresses, and sockets bound to a device, are not found. Neither is a socket that
 * connects at the same moment.
 */
#pragma once

#include "../abi/config.h"
#include "../lib/addr.h"
#include "../lib/kernel.h"
#include "../lib/kernel_tuple.h"
#include "../lib/verdict.h"
#include "client_addr.h"
#include "socket_nat.h"
#include "socket_storage.h"

#define SOL_SOCKET 1
#define SO_REUSEADDR 2
#define SO_REUSEPORT 15

/* Another socket with the same port that has a peer already. */
enum other_socket {
	OTHER_NONE,
	OTHER_CONNECTED,
	OTHER_BY_SERVICE, /* connected by a Service, as far as the kernel tells */
};

/* The search for it. What own has found becomes an enum other_socket. */
struct port_search {
	struct client_search own; /* for addresses that it may have */
	struct bpf_sock_addr *ctx;
	const struct addr_port *peer;
};

/* Is an option of a socket set, as far as is known? */
static __always_inline bool may_be_set(struct bpf_sock_addr *ctx, int option)
{
	int value = 0;

	return bpf_getsockopt(ctx, SOL_SOCKET, option, &value, sizeof(value)) ||
	       value;
}

/* May another UDP socket have the source port of this one? Most have no port yet. */
static __always_inline bool may_share_port(struct bpf_sock_addr *ctx)
{
	return ctx->protocol == IPPROTO_UDP && ctx->sk->src_port &&
	       (may_be_set(ctx, SO_REUSEADDR) || may_be_set(ctx, SO_REUSEPORT));
}

/* Is an entry that of a connected socket for its peer? */
static __always_inline bool is_for_peer(const struct socket_entry *e,
					const struct addr_port *peer)
{
	return has_flag(e, ENTRY_CONNECTED) && entry_leads_to(e, peer);
}

/*
 * Has a socket that was looked up connected to its peer by a Service? Linux before 6.2 does not
 * show its cookie. Such a socket has the entry in its slot, or as the first in its storage.
 */
static __always_inline bool is_by_service(struct bpf_sock *sk,
					  const struct addr_port *peer)
{
	const struct sock_common *common;
	struct stored_entries *stored;
	struct socket_entry *e;
	__u64 cookie;

	if (!kernel_readable || !bpf_rdonly_cast)
		return false;
	common = bpf_rdonly_cast(sk,
				 bpf_core_type_id_kernel(struct sock_common));
	cookie = common->skc_cookie.counter;
	if (!cookie) /* it is older than the programs: a free slot has this owner */
		return false;
	e = slot_entry(cookie);
	if (e && is_for_peer(e, peer))
		return true;
	stored = stored_of(sk, cookie);
	return stored && is_for_peer(&stored->entry[0], peer);
}

/* Which other socket has the peer from an address? */
static __noinline enum other_socket other_at(struct bpf_sock_addr *ctx,
					     const struct addr_port *peer,
					     const struct ip_addr *own)
{
	struct tuple answer = {
		.src = peer->addr,
		.dst = *own,
		.src_port = peer->port,
		.dst_port = bpf_htons(ctx->sk->src_port),
	};
	enum other_socket other = OTHER_NONE;
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *sk;
	__u32 size;

	size = kernel_tuple(&answer, &tuple);
	sk = bpf_sk_lookup_udp(ctx, &tuple, size, BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return OTHER_NONE;
	if (sk->state == BPF_TCP_ESTABLISHED && sk != ctx->sk)
		other = is_by_service(sk, peer) ? OTHER_BY_SERVICE :
						  OTHER_CONNECTED;
	bpf_sk_release(sk);
	return other;
}

/* One device; 1 ends the search. */
static long look_from_device(__u32 i, void *data)
{
	struct port_search *s = data;

	if (!search_device(&s->own))
		return 1;
	if (s->own.found)
		s->own.found = other_at(s->ctx, s->peer, &s->own.addr);
	return s->own.found != OTHER_NONE;
}

/*
 * Which other socket with the same port has a peer already? Packets to an address of the
 * namespace itself come from just that.
 */
GLOBAL_FUNC int other_with_peer(struct bpf_sock_addr *ctx,
				const struct addr_port *peer)
{
	struct port_search s = { .ctx = ctx, .peer = peer };
	enum other_socket other;

	if (!peer)
		return OTHER_NONE;
	s.own.ip4 = is_ip4(&peer->addr);
	if (bound_address(ctx, s.own.ip4, &s.own.addr))
		return other_at(ctx, peer, &s.own.addr);
	other = other_at(ctx, peer, &peer->addr);
	if (other || !kernel_readable ||
	    !begin_search(&s.own, bpf_get_netns_cookie(ctx)))
		return other;
	bpf_loop(CLIENT_DEVICES, look_from_device, &s, 0);
	return s.own.found;
}
