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

/* Does the Service of a frontend still have the backend of an entry? */
static __always_inline bool service_has(const struct frontend *f,
					const struct socket_entry *e)
{
	struct choice c = { .slot = e->slot };

	return f && still_names(f->members, e->backend_id, &c.slot) &&
	       find_backend(&c) && same_addr_port(&c.backend->to, &e->backend);
}

/*
 * Has the backend left the Service for good, its draining done? The socket asked for an
 * address of the frontend, which may be a former one, or of the node for a NodePort. Whether
 * that still is one does not matter to a connection that stands.
 */
static __always_inline bool is_broken(const struct socket_entry *e)
{
	struct addr_port node_port = e->frontend;

	if (service_has(frontend_at(&e->frontend), e))
		return false;
	node_port.addr = unspecified(&e->frontend.addr);
	return !service_has(frontend_at(&node_port), e);
}

/* The entry of a socket that leads to its peer, or NULL. */
static __always_inline struct socket_entry *
entry_of_peer(struct sock_common *sk, const struct addr_port *peer)
{
	struct socket_entry *e = slot_entry(bpf_get_socket_cookie(sk));
	struct stored_entries *stored;

	if (e && entry_leads_to(e, peer))
		return e;
	stored = bpf_sk_storage_get(&stored_entries, sk, NULL, 0);
	return stored ? stored_to_backend(sk, stored, peer, 0) : NULL;
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
	struct socket_entry *e;
	long err;

	if (!has_peer(sk))
		return;
	peer = peer_of(sk, protocol);
	e = entry_of_peer(sk, &peer);
	if (!e || !(destroy_all || is_broken(e)))
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

/* Writes the entries in the storage of a socket, one after the other. */
static __always_inline void list_stored_of(struct bpf_iter_meta *meta,
					   const struct stored_entries *stored)
{
	if (stored)
		bpf_seq_write(meta->seq, stored->entry, sizeof(stored->entry));
}

static __always_inline void list_many_of(struct bpf_iter_meta *meta,
					 const struct many_entries *m)
{
	if (m)
		bpf_seq_write(meta->seq, m->entry, sizeof(m->entry));
}

/* Writes the cookie of a socket that has a slot of the socket_nat map. */
static __always_inline void list_owner(struct bpf_iter_meta *meta,
				       struct sock_common *sk)
{
	__u64 cookie;

	if (!slot_entry_of(sk))
		return;
	cookie = bpf_get_socket_cookie(sk);
	bpf_seq_write(meta->seq, &cookie, sizeof(cookie));
}
