/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the TCP sockets that connect to a backend tell of it, whoever notices: the
 * tracepoints (trace.h) or sock_ops. Of other sockets nothing is asked.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../lb/client.h"
#include "../lb/health.h"
#include "../lib/addr.h"
#include "../lib/kernel.h"
#include "socket_nat.h"
#include "socket_storage.h"

/* A connection that was sent to a backend. */
struct watched {
	struct tcp_sock *tp;
	struct socket_entry *entry;
	struct backend *backend;
};

/* The entry of a TCP socket, which has one at most, or NULL. */
static __always_inline struct socket_entry *tcp_entry(struct tcp_sock *tp,
						      __u64 cookie)
{
	struct socket_entry *e = slot_entry(cookie);
	struct stored_entries *stored;

	if (e)
		return e;
	stored = stored_of(tp, cookie);
	return stored ? &stored->entry[0] : NULL;
}

/* The backend of an entry, or NULL: it may be gone by now. */
static __always_inline struct backend *
entry_backend(const struct socket_entry *e)
{
	__u32 id = e->backend_id;
	struct backend *b = bpf_map_lookup_elem(&backends, &id);

	return b && id && same_addr_port(&b->to, &e->backend) ? b : NULL;
}

/* Fills in what a socket is about; false if it is none of ours. */
static __always_inline bool find_watched(struct tcp_sock *tp, __u64 cookie,
					 struct watched *w)
{
	w->tp = tp;
	w->entry = tcp_entry(tp, cookie);
	if (!w->entry)
		return false;
	w->backend = entry_backend(w->entry);
	return w->backend;
}

/* The client of an entry, as choices know it. */
static __always_inline __u32 entry_client(const struct socket_entry *e)
{
	struct ip_addr addr = local_client(e->netns, is_ip4(&e->frontend.addr));

	return client_id(&addr, true);
}

/*
 * Does the client of a socket speak for others, too? Any process can make network
 * namespaces in a user namespace of its own, as many clients as it likes, and give
 * them the addresses of backends. Root of the node makes those of pods with users of
 * their own.
 */
static __noinline bool speaks_for_others(const struct sock *sk)
{
	struct user_namespace *ns =
		BPF_CORE_READ(sk, __sk_common.skc_net.net, user_ns);
	int level = BPF_CORE_READ(ns, level);

	return !level || (level == 1 && !BPF_CORE_READ(ns, owner.val));
}

/* Does the client of a socket speak for others, too? */
static __always_inline bool client_speaks(const struct tcp_sock *tp)
{
	return !kernel_readable || speaks_for_others((const struct sock *)tp);
}

/*
 * Does it say something about the backend that a socket has got no answer? Not if
 * the program has seen to it that its SYN goes elsewhere or not far, or that the
 * answer is dropped.
 */
static __noinline bool has_vote(struct tcp_sock *tp)
{
	struct inet_sock *inet = (struct inet_sock *)tp;
	struct sock *sk = (struct sock *)tp;
	struct ipv6_pinfo *ip6;

	if (sk->__sk_common.skc_bound_dev_if)
		return false;
	if (!kernel_readable)
		return true;
	if (BPF_CORE_READ(sk, sk_filter) || BPF_CORE_READ(inet, uc_ttl) >= 0)
		return false;
	if (!bpf_core_field_exists(inet->pinet6)) /* a kernel without IPv6 */
		return true;
	ip6 = BPF_CORE_READ(inet, pinet6);
	return !ip6 || BPF_CORE_READ(ip6, hop_limit) < 0;
}

/* The backend did not take the connection. If it does so later that is news. */
static __always_inline void note_refusal(struct watched *w, __u64 now_ns)
{
	set_flag(w->entry, ENTRY_AWAITED);
	if (has_vote(w->tp))
		note_failure_at(w->backend, entry_client(w->entry),
				client_speaks(w->tp), now_ns);
}

/*
 * The backend has refused or never answered, or the client has given up: an error
 * of the socket that has never been answered says which.
 */
static __always_inline void connection_failed(struct watched *w, int error,
					      __u64 now_ns)
{
	if (error == ECONNREFUSED || error == ETIMEDOUT ||
	    error == EHOSTUNREACH || error == ENETUNREACH)
		note_refusal(w, now_ns);
	retire_entry(w->entry);
}

/* The backend took the connection. */
static __always_inline void note_taken(struct backend *b,
				       struct socket_entry *e,
				       const struct tcp_sock *tp, __u64 now_ns)
{
	clear_flag(e, ENTRY_AWAITED);
	if (client_speaks(tp))
		note_success_at(b, now_ns);
	else
		note_own_success(b, entry_client(e), now_ns);
}
