/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * How long a backend takes to answer, network and application together, as the
 * kernel has seen it of sockets of this node: from the last that was sent to the
 * last that was received. Measured of backends that an algorithm asks it of.
 *
 * More than before is believed at once, less only by and by: so a backend that
 * gets slow is noticed with its first answer (peak EWMA). While nobody measures it
 * fades, so that who was slow once is asked again.
 *
 * Of the kernel's structs stand here only the members that are read; the
 * loader finds out where they really are.
 */
#pragma once

#include <linux/in.h>

#include <bpf/bpf_core_read.h>

#include "config.h"
#include "maps.h"

#define ANSWER_SHIFT 3			  /* a sample counts for an eighth */
#define ANSWER_HALF_LIFE_NS 2147483648ULL /* about 2.1 seconds */

/*
 * Longer than a second, about, is a stream or a backend that hangs: how much
 * longer says nothing. It also bounds for how long a backend is not asked again.
 */
#define ANSWER_MOST_US (1 << 20)

struct inet_connection_sock {
	struct {
		__u32 lrcvtime; /* jiffies, when data came last */
	} icsk_ack;
} __attribute__((preserve_access_index));

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 lsndtime;	       /* jiffies, when data was sent last */
	__u64 tcp_mstamp;      /* µs, when a packet came or went last */
	__u64 first_tx_mstamp; /* µs, when what was acknowledged last was sent */
	__u64 bytes_received;
	__u64 bytes_sent;
	__u32 srtt_us; /* in eighths */
} __attribute__((preserve_access_index));

/*
 * In answer_us: nobody has got an answer since, it takes so long at the least. So
 * says a handshake, which no answer is faster than, and a client that gives up.
 */
#define ANSWER_AT_LEAST (1U << 31)

/*
 * What is known of an answer time. While nobody measures it, the two part: who was
 * slow may be faster by now, but is not known to be faster than any other.
 */
struct answer_time {
	__u32 least_us; /* what was measured last, faded; 0: unknown */
	__u32 most_us;	/* what was measured last; 0: unknown */
};

static __always_inline struct answer_time answer_time(const struct backend *b,
						      __u64 now)
{
	__u32 last = b->answer_us, us = last & ~ANSWER_AT_LEAST;
	struct answer_time t = { us, last & ANSWER_AT_LEAST ? 0 : us };
	__u64 age = now - b->answer_at_ns, halves;

	if ((__s64)age <= 0)
		return t;
	halves = age / ANSWER_HALF_LIFE_NS;
	t.least_us = halves > 31 ? 0 : us >> halves;
	/* Between two halves it is a line. */
	t.least_us -= t.least_us * (age % ANSWER_HALF_LIFE_NS) /
		      (2 * ANSWER_HALF_LIFE_NS);
	return t;
}

/* The same. Whoever asks makes sure that it is measured from now on. */
static __always_inline struct answer_time ask_answer_time(struct backend *b,
							  __u64 now)
{
	if (!b->answer_at_ns)
		b->answer_at_ns = now;
	return answer_time(b, now);
}

/* An answer takes so long at the least: what is less than known says nothing. */
static __always_inline void note_wait(struct backend *b, __u64 us)
{
	__u64 now = bpf_ktime_get_coarse_ns();
	struct answer_time old = answer_time(b, now);

	if (us > ANSWER_MOST_US)
		us = ANSWER_MOST_US;
	if (us <= old.least_us || us <= old.most_us)
		return;
	b->answer_us = us | ANSWER_AT_LEAST;
	b->answer_at_ns = now;
}

/* An answer took so long. */
static __always_inline void note_answer(struct backend *b, __u32 us)
{
	__u64 now = bpf_ktime_get_coarse_ns();
	__u32 old = answer_time(b, now).least_us;

	if (us > ANSWER_MOST_US)
		us = ANSWER_MOST_US;
	if (us < old)
		us = old - ((old - us) >> ANSWER_SHIFT);
	b->answer_us = us;
	b->answer_at_ns = now;
}

/*
 * Notes what a TCP socket that is about to be closed has seen of its backend. The
 * clock of microseconds also runs for what the kernel sends by itself later, such
 * as an acknowledgement; that of jiffies is coarse, but for data alone: the answer
 * took less than one more of them than lie between.
 */
static __always_inline void note_exchange(struct backend *b,
					  const struct tcp_sock *tp)
{
	__u32 received = BPF_CORE_READ(tp, inet_conn.icsk_ack.lrcvtime);
	__s32 ticks = received - BPF_CORE_READ(tp, lsndtime);
	__u64 sent_us = BPF_CORE_READ(tp, first_tx_mstamp), us, most;

	if (ticks < 0 || !BPF_CORE_READ(tp, bytes_received)) {
		if (BPF_CORE_READ(tp, bytes_sent)) /* an answer was due */
			note_wait(b, bpf_ktime_get_ns() / 1000 - sent_us);
		return;
	}
	if (((__u32)bpf_jiffies64() - received) * (__u64)tick_us * 1000 >
	    ANSWER_HALF_LIFE_NS)
		return; /* it was long ago */
	us = BPF_CORE_READ(tp, tcp_mstamp) - sent_us;
	most = (ticks + 1ULL) * tick_us;
	if (us > most)
		us = most;
	most = BPF_CORE_READ(tp, srtt_us) >> 3; /* no answer is faster */
	note_answer(b, us > most ? us : most);
}

/* The socket that had been sent to a backend is about to be closed. */
static __always_inline void note_closing(struct backend *b, struct bpf_sock *sk)
{
	if (kernel_readable && b->answer_at_ns && b->to.protocol == IPPROTO_TCP)
		note_exchange(b, (const void *)sk);
}
