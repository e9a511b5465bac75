/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * When a backend leaves its Service, sockets that were sent to it are told at
 * once instead of waiting for an answer that never comes. The agent runs these
 * iterators over the sockets of each network namespace.
 *
 * Where the kernel has no bpf_sock_destroy (before 6.5) they name the sockets to
 * the agent, who has them destroyed through INET_DIAG.
 *
 * Of the kernel's structs stand here only the members that are read; the
 * loader finds out where they really are.
 */
#pragma once

#include <linux/in6.h>

#include "frontend.h"
#include "promise.h"
#include "select.h"

#define AF_INET6 10
#define TCP_ESTABLISHED 1 /* a connected UDP socket, too */
#define TCP_SYN_SENT 2
#define TCP_CLOSE_WAIT 8

struct udp_sock;
struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
} __attribute__((preserve_access_index));

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num; /* local port, host order */
	unsigned short skc_family;
	volatile unsigned char skc_state;
	int skc_bound_dev_if;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
} __attribute__((preserve_access_index));

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
} __attribute__((preserve_access_index));

struct bpf_iter__udp {
	struct bpf_iter_meta *meta;
	struct udp_sock *udp_sk;
} __attribute__((preserve_access_index));

/* A socket as INET_DIAG knows it; IPv4 addresses stand in the first word. */
struct named_socket {
	__u64 cookie;
	__be32 local[4];
	__be32 peer[4];
	__u32 device; /* that it is bound to, or 0 */
	__be16 local_port;
	__be16 peer_port;
	__u8 family;
	__u8 protocol;
	__u8 pad[6];
};

_Static_assert(sizeof(struct named_socket) == 56, "no hidden padding");

/* Since Linux 6.5. */
extern int bpf_sock_destroy(struct sock_common *sk) __ksym __weak;

/* Does the socket talk, or try to talk, to just one peer? */
static __always_inline bool has_peer(const struct sock_common *sk)
{
	unsigned char state = sk->skc_state;

	return state == TCP_ESTABLISHED || state == TCP_SYN_SENT ||
	       state == TCP_CLOSE_WAIT;
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

/* Has the backend left the Service for good, its draining done? */
static __always_inline bool is_broken(const struct promise *p)
{
	struct frontend *f = frontend_at(&p->frontend);
	struct choice c = { .slot = p->slot };

	if (!f)
		return true; /* with its Service */
	if (!still_names(f->known, p->backend_id, &c.slot) || !find_backend(&c))
		return true;
	return !same_addr_port(&c.backend->to, &p->backend);
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
	return stored ? find_promise(stored, peer) : NULL;
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
