/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A socket is closed: its socket NAT entries end, and a TCP socket tells for the last
 * time how its backend is.
 */
#pragma once

#include "../abi/config.h"
#include "../lb/client.h"
#include "../lb/health.h"
#include "../lb/response_time.h"
#include "../lib/kernel.h"
#include "../lib/time.h"
#include "observe.h"
#include "socket_nat.h"
#include "socket_storage.h"
#include "traffic.h"

/* Has the backend answered the SYN of a socket? That outlives the connection. */
static __always_inline bool was_answered(const struct tcp_sock *tp)
{
	return KERNEL_READ(tp, rcv_nxt);
}

/* Did the backend acknowledge anything within the last second? */
static __always_inline bool is_heard(const struct tcp_sock *tp)
{
	__u32 ticks =
		elapsed_ticks(bpf_jiffies64(), KERNEL_READ(tp, rcv_tstamp));

	return ticks * (__u64)tick_us <= NSEC_PER_SEC / 1000;
}

/*
 * Was the backend well until the end of a connection? One that was chosen while the
 * backend was well, long ago, clears nothing that was held against the backend since.
 */
static __always_inline void note_ended(struct backend *b,
				       struct socket_entry *e,
				       const struct tcp_sock *tp, __u64 now_ns)
{
	const struct sock *sk = (const struct sock *)tp;
	bool awaited = has_flag(e, ENTRY_AWAITED);

	if (!awaited && b->taken_at == health_time(now_ns))
		return;
	if (!was_answered(tp) || KERNEL_READ(sk, __sk_common.skc_bound_dev_if))
		return;
	if (awaited)
		note_taken(b, e, tp, now_ns);
	else if (is_heard(tp) && client_speaks(tp))
		b->taken_at = health_time(now_ns);
}

/* The connection of an entry ends, in flight no more, by the process that has it. */
static __always_inline void end_entry(struct socket_entry *e,
				      struct bpf_sock *sk)
{
	struct backend *b = close_entry(e);
	const struct tcp_sock *tp;

	if (!b || !kernel_readable || b->to.protocol != IPPROTO_TCP)
		return;
	tp = readable_tcp(sk);
	count_closed(e, b, sk, tp);
	if (failures_traced)
		note_ended(b, e, tp, bpf_ktime_get_coarse_ns());
	if (b->is_timed && client_speaks(tp))
		note_exchange(b, tp, measurer(e->netns));
}

/* The socket is gone, and its entries with it. The kernel frees its storage. */
static __always_inline void forget_socket(struct bpf_sock *sk)
{
	__u64 cookie = bpf_get_socket_cookie(sk);
	struct socket_slot *slot = socket_slot_of(cookie);
	struct stored_entries *stored;

	if (slot && slot->owner == cookie) {
		end_entry(&slot->entry, sk);
		slot->owner = 0;
	}
	stored = stored_of(sk, cookie);
	if (!stored)
		return;
	end_entry(&stored->entry[0], sk); /* a TCP socket has no other */
	stored->entry[0].backend_id = 0;
	retire_all(sk, stored, cookie);
}

static __always_inline bool is_kernel_socket(struct sock *sk)
{
	return BPF_CORE_READ_BITFIELD(sk, sk_kern_sock);
}

/*
 * The kernel closes a socket of its own, such as the ones below a Multipath TCP
 * socket: no process releases it.
 */
static __always_inline void forget_kernel_socket(struct tcp_sock *tp,
						 __u64 cookie)
{
	struct stored_entries *stored = stored_of(tp, cookie);

	delete_entry(cookie);
	if (stored)
		retire_all(tp, stored, cookie);
}
