/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What becomes of connections, at no cost for those that work: tracepoints that fire
 * when something goes wrong, and the iterators that the agent runs while a backend has
 * failures, to find the connections that it took since. Tracepoints are of the whole
 * system: the socket NAT entry says whether a socket is one of ours.
 *
 * The coarse clock is refused here; that of bpf_ktime_get_ns() is ahead of it by a tick
 * at the most.
 */
#pragma once

#include "../abi/maps.h"
#include "../lb/health.h"
#include "../lib/kernel.h"
#include "closing.h"
#include "observe.h"
#include "socket_nat.h"
#include "socket_storage.h"
#include "traffic.h"

static __always_inline bool find_traced(struct sock *sk, struct watched *w)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);

	return tp && find_watched(tp, bpf_get_socket_cookie(sk), w);
}

/* TCP sends something again: a SYN that the backend has not answered? */
static __always_inline void note_retransmit(struct sock *sk)
{
	struct watched w;

	if (sk->__sk_common.skc_state != BPF_TCP_SYN_SENT ||
	    !find_traced(sk, &w))
		return;
	count_repeat(w.entry);
	note_refusal(&w, bpf_ktime_get_ns());
}

/*
 * The kernel tells a socket of an error: a reset, an ICMP error, a time-out, or that
 * the program has given up. The entry is retired with the first one.
 */
static __always_inline void note_socket_error(struct sock *sk)
{
	int error = sk->sk_err;
	struct tcp_sock *tp;
	struct watched w;

	if (!error)
		return;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp || !find_watched(tp, bpf_get_socket_cookie(sk), &w))
		return;
	count_error(&w, error);
	if (!tp->rcv_nxt) /* it was not answered */
		connection_failed(&w, error, bpf_ktime_get_ns());
}

/* TCP frees a socket: one of the kernel's own? */
static __always_inline void note_destroyed(struct sock *sk)
{
	struct watched w;

	if (!is_kernel_socket(sk) || !find_traced(sk, &w))
		return;
	note_ended(w.backend, w.entry, w.tp, bpf_ktime_get_ns());
	count_closed(w.entry, w.backend, w.tp, w.tp);
	forget_kernel_socket(w.tp, bpf_get_socket_cookie(sk));
}

/* Has the backend taken the connection of an entry whose success is news? */
static __always_inline void note_standing(struct sock *sk,
					  struct socket_entry *e)
{
	struct tcp_sock *tp;
	struct backend *b;

	if (!has_flag(e, ENTRY_AWAITED) || sk->__sk_common.skc_bound_dev_if)
		return;
	tp = bpf_skc_to_tcp_sock(sk);
	b = entry_backend(e);
	if (tp && b && tp->rcv_nxt)
		note_taken(b, e, tp, bpf_ktime_get_ns());
}

/* The same of the entry in the slot of a socket. */
static __always_inline void note_standing_slot(struct sock_common *sk)
{
	struct socket_entry *e = slot_entry_of(sk);

	if (e)
		note_standing((struct sock *)sk, e);
}
