/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the agent asks of sockets, by iterators that it runs.
 *
 * When a backend leaves its Service, sockets that were sent to it are told at once
 * instead of waiting for an answer that never comes, in each network namespace.
 * Where the kernel has no bpf_sock_destroy (before 6.5) they are named to the agent,
 * which has them destroyed through INET_DIAG.
 *
 * For a count of connections it lists what cannot be read from outside: what sockets
 * keep with themselves, and which sockets there are.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../lb/frontend.h"
#include "../lb/table.h"
#include "../lib/addr.h"
#include "../lib/kernel.h"
#include "../lib/verdict.h"
#include "socket_nat.h"
#include "socket_storage.h"

/* Does the socket talk, or try to talk, to just one peer? */
static __always_inline bool has_peer(const struct sock_common *sk)
{
	unsigned char state = sk->skc_state;

	/* A connected UDP socket is established, too. */
	return state == BPF_TCP_ESTABLISHED || state == BPF_TCP_SYN_SENT ||
	       state == BPF_TCP_CLOSE_WAIT;
}

static __always_inline struct addr_port peer_of(const struct sock_common *sk,
						__u8 protocol)
{
	struct addr_port peer = { .port = sk->skc_dport, .protocol = protocol };

	if (sk->skc_family != AF_INET6) {
		peer.addr = from_ip4(sk->skc_daddr);
		return peer;
	}
	for (int i = 0; i < 4; i++)
		peer.addr.word[i] = sk->skc_v6_daddr.in6_u.u6_addr32[i];
	return peer;
}

/* Does the Service of a frontend still have the backend of a promise? */
static __always_inline bool knows_backend(const struct frontend *f,
					  const struct promise *p)
{
	struct choice c = { .slot = p->slot };

	return f && still_names(f->known, p->backend_id, &c.slot) &&
	       find_backend(&c) && same_addr_port(&c.backend->to, &p->backend);
}

/*
 * Has the backend left the Service for good, its draining done? The socket asked
 * for an address of the frontend or, of a NodePort, for one of the node: whether
 * that still is one does not matter to a connection that stands.
 */
static __always_inline bool is_broken(const struct promise *p)
{
	struct addr_port node_port = p->frontend;

	if (knows_backend(frontend_at(&p->frontend), p))
		return false;
	node_port.addr = unspecified(&p->frontend.addr);
	return !knows_backend(frontend_at(&node_port), p);
}

/* The promise of a socket that its peer keeps, or NULL. */
static __always_inline struct promise *
promise_of_peer(struct sock_common *sk, const struct addr_port *peer)
{
	struct promise *p = slot_promise(bpf_get_socket_cookie(sk));
	struct stored_promises *stored;

	if (p && promises_backend(p, peer))
		return p;
	stored = bpf_sk_storage_get(&stored_promises, sk, NULL, 0);
	return stored ? stored_about_backend(sk, stored, peer, 0) : NULL;
}

/* A function of its own, so that the type stands in the BTF. */
static __noinline long write_name(struct seq_file *seq,
				  const struct named_socket *s)
{
	return bpf_seq_write(seq, s, sizeof(*s));
}

/* Names a socket to the agent; 0 or an error. */
static __always_inline long name_socket(struct seq_file *seq,
					struct sock_common *sk, __u8 protocol)
{
	struct named_socket s = {
		.cookie = bpf_get_socket_cookie(sk),
		.device = sk->skc_bound_dev_if,
		.local_port = bpf_htons(sk->skc_num),
		.peer_port = sk->skc_dport,
		.family = sk->skc_family,
		.protocol = protocol,
	};

	if (s.family != AF_INET6) {
		s.local[0] = sk->skc_rcv_saddr;
		s.peer[0] = sk->skc_daddr;
		return write_name(seq, &s);
	}
	for (int i = 0; i < 4; i++) {
		s.local[i] = sk->skc_v6_rcv_saddr.in6_u.u6_addr32[i];
		s.peer[i] = sk->skc_v6_daddr.in6_u.u6_addr32[i];
	}
	return write_name(seq, &s);
}

static __always_inline void destroy_if_broken(struct bpf_iter_meta *meta,
					      struct sock_common *sk,
					      __u8 protocol)
{
	struct addr_port peer;
	struct promise *p;
	long err;

	if (!has_peer(sk))
		return;
	peer = peer_of(sk, protocol);
	p = promise_of_peer(sk, &peer);
	if (!p || !is_broken(p))
		return;
	if (name_sockets)
		err = name_socket(meta->seq, sk, protocol);
	else if (bpf_sock_destroy)
		err = bpf_sock_destroy(sk);
	else
		return;
	if (!err)
		count(socket_destroyed);
}

/* Writes the promises that a socket keeps with itself, one after the other. */
static __always_inline void list_stored_of(struct bpf_iter_meta *meta,
					   const struct stored_promises *stored)
{
	if (stored)
		bpf_seq_write(meta->seq, stored->promise,
			      sizeof(stored->promise));
}

static __always_inline void list_many_of(struct bpf_iter_meta *meta,
					 const struct many_promises *m)
{
	if (m)
		bpf_seq_write(meta->seq, m->promise, sizeof(m->promise));
}

/*
 * Writes the cookie of a socket that has a slot of the promises map. What stands for
 * a connection before and after its socket has none.
 */
static __always_inline void list_owner(struct bpf_iter_meta *meta,
				       struct sock_common *sk)
{
	unsigned char state = sk->skc_state;
	__u64 cookie;

	if (state == BPF_TCP_TIME_WAIT || state == BPF_TCP_NEW_SYN_RECV)
		return;
	cookie = bpf_get_socket_cookie(sk);
	if (slot_promise(cookie))
		bpf_seq_write(meta->seq, &cookie, sizeof(cookie));
}
