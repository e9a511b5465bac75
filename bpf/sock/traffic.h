/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Traffic of sockets, of which no packet is ever looked at: the kernel counts the bytes of
 * a TCP socket itself, and they are read when it is closed. Of a socket that lives long an
 * iterator of the agent adds what has come and gone since it was there last. The kernel
 * has no such numbers of UDP sockets.
 */
#pragma once

#include "../abi/maps.h"
#include "../lb/frontend.h"
#include "../lb/health.h"
#include "../lb/traffic.h"
#include "../lib/addr.h"
#include "../lib/kernel.h"
#include "observe.h"
#include "socket_nat.h"
#include "socket_storage.h"

/* A backend has failed the connection of an entry. */
static __noinline int count_failed(const struct socket_entry *e,
				   struct backend *b, enum failure how)
{
	if (count_traffic)
		count_failure(service_named(service_at(&e->frontend)), b, how);
	return 0;
}

/*
 * What the process has written, sent or not, counts once; and what was received, of which
 * the kernel counts the end of the stream as a byte.
 */
static __always_inline struct payload payload_of(const struct tcp_sock *tp)
{
	const struct sock *sk = (const struct sock *)tp;
	struct payload p;

	p.bytes[TO_BACKEND] =
		KERNEL_READ(tp, bytes_sent) - KERNEL_READ(tp, bytes_retrans);
	p.bytes[TO_BACKEND] +=
		KERNEL_READ(tp, write_seq) - KERNEL_READ(tp, snd_nxt);
	p.bytes[FROM_BACKEND] = KERNEL_READ(tp, bytes_received);
	if (p.bytes[FROM_BACKEND] &&
	    KERNEL_READ(sk, __sk_common.skc_flags) & SOCK_DONE)
		p.bytes[FROM_BACKEND]--;
	return p;
}

/*
 * Microseconds from the SYN to its answer: the shortest that the kernel has seen of the
 * connection, which has no clock for just the first, and a second for each SYN that had to be
 * sent again.
 */
static __always_inline __u64 connect_us(const struct socket_entry *e,
					const struct tcp_sock *tp)
{
	return KERNEL_READ(tp, rtt_min.s[0].v) + e->frontend.pad * 1000000ULL;
}

/* A SYN is sent again. */
static __always_inline void count_repeat(struct socket_entry *e)
{
	if (count_traffic && e->frontend.pad < 0xff)
		e->frontend.pad++;
}

/* An error ends a connection, which was answered or not. */
static __always_inline void count_error(const struct watched *w, int error)
{
	bool stood = w->tp->rcv_nxt;

	if (error == ECONNREFUSED && !stood)
		count_failed(w->entry, w->backend, FAILURE_REFUSED);
	else if (error == ETIMEDOUT)
		count_failed(w->entry, w->backend, FAILURE_TIMED_OUT);
	else if ((error == EHOSTUNREACH || error == ENETUNREACH) && !stood)
		count_failed(w->entry, w->backend, FAILURE_UNREACHABLE);
	else if ((error == ECONNRESET || error == EPIPE) && stood)
		count_failed(w->entry, w->backend, FAILURE_RESET);
}

/*
 * A TCP socket is closed: its traffic counts, or that it was not answered. What a socket was
 * before it has connected once more the kernel has forgotten.
 */
static __always_inline void count_closed(const struct socket_entry *e,
					 struct backend *b, void *sk,
					 const struct tcp_sock *tp)
{
	struct payload p, *counted;
	struct service *s;

	if (!count_traffic)
		return;
	if (!KERNEL_READ(tp, rcv_nxt)) {
		if (KERNEL_READ((const struct sock *)tp,
				__sk_common.skc_state) == BPF_TCP_SYN_SENT)
			count_failed(e, b, FAILURE_TIMED_OUT);
		return;
	}
	s = service_named(service_at(&e->frontend));
	p = payload_of(tp);
	if (has_flag(e, ENTRY_COUNTED)) {
		counted = bpf_sk_storage_get(&counted_payload, sk, 0, 0);
		if (counted)
			leave_new(counted, &p);
	}
	add_payload(s, b, &p);
	if (s)
		add_sum(&s->connect_times[bucket_of(connect_us(e, tp))], 1);
}

/* What a socket that stands has sent and received since it was looked at last counts. */
static __always_inline void count_standing(struct sock *sk,
					   struct socket_entry *e)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct backend *b = entry_backend(e);
	struct payload p, *counted;

	if (!tp || !b || !tp->rcv_nxt)
		return;
	counted = bpf_sk_storage_get(&counted_payload, sk, 0,
				     BPF_SK_STORAGE_GET_F_CREATE);
	if (!counted)
		return;
	set_flag(e, ENTRY_COUNTED);
	p = payload_of(readable_tcp(tp));
	leave_new(counted, &p);
	add_payload(service_named(service_at(&e->frontend)), b, &p);
}

/* The same of the entry in the slot of a socket. */
static __always_inline void count_standing_slot(struct sock_common *sk)
{
	struct socket_entry *e = slot_entry_of(sk);

	if (e)
		count_standing((struct sock *)sk, e);
}
