/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * How long a backend takes to answer, network and application together, as the
 * kernel has seen it of sockets of this node: from the last that was sent to the
 * last that was received. Measured of backends that an algorithm asks it of.
 *
 * Each client measures for itself: more than before is believed at once, less only by
 * and by, so that it notices with the first answer that a backend gets slow (peak
 * EWMA). Of others it believes what two say. So a client that makes
 * responses slow, by asking for what takes long or by not reading them, makes a backend
 * look slow to itself alone. A value without new measurements fades, so that a backend
 * that was slow once is tried again.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/frontend_types.h"
#include "../lib/kernel.h"
#include "../lib/time.h"
#include "../lib/verdict.h"
#include "client.h"

#define RESPONSE_SHIFT 3      /* a sample counts for an eighth */
#define RESPONSE_HALF_LIFE 32 /* ticks: about 2.1 seconds */

/*
 * Longer than a second, about, is a stream or a backend that hangs: how much
 * longer says nothing. It also bounds for how long a backend is not asked again.
 */
#define RESPONSE_MOST_US ((1 << RESPONSE_US_BITS) - 1)

/* srtt_us is in eighths of a microsecond. */
#define SRTT_UNIT_SHIFT 3

#define RESPONSE_TICK_MASK ((1 << RESPONSE_TICK_BITS) - 1)

/*
 * The bounds of a response time. Without new measurements they part: a backend that was
 * slow may be faster by now, but is not known to be faster than any other.
 */
struct response_time {
	__u32 most_us;	/* what was measured last; 0: unknown */
	__u32 least_us; /* the same, faded; 0: unknown */
};

/* The same as a word: the greater one is the longer time. */
static __always_inline __u64 time_word(struct response_time t)
{
	return (__u64)t.least_us << 32 | t.most_us;
}

static __always_inline __u32 response_tick(void)
{
	return bpf_ktime_get_coarse_ns() >> RESPONSE_NS_SHIFT;
}

/* Ticks since a word was measured. */
static __always_inline __u32 response_age(__u64 word, __u32 now)
{
	return elapsed_bits(now, word >> RESPONSE_TICK_SHIFT,
			    RESPONSE_TICK_BITS);
}

/* What a client knows by its word. */
static __always_inline struct response_time response_time(__u64 word, __u32 now)
{
	__u32 us = word & RESPONSE_MOST_US, age = response_age(word, now);
	__u32 halves = age / RESPONSE_HALF_LIFE, least;

	least = halves > 31 ? 0 : us >> halves;
	/* Between two halves it is a line. */
	least -= least * (age % RESPONSE_HALF_LIFE) / (2 * RESPONSE_HALF_LIFE);
	return (struct response_time){ word & RESPONSE_AT_LEAST ? 0 : us,
				       least };
}

/* The word of a client at an index, read once: others write it. */
static __always_inline __u64 response_word(const struct backend *b, __u32 i)
{
	return *(const volatile __u64 *)&b->responses[i % RESPONSE_CLIENTS];
}

/*
 * What a client has to believe of the response time of a backend, as time_word(): the
 * longest that two clients have measured, where its own counts for two. From the first
 * call on it is measured. It must take any pointer.
 */
GLOBAL_FUNC __u64 ask_time_word(struct backend *b, __u32 client)
{
	__u64 own = 0, longest = 0, second = 0, word, t;
	__u32 longest_of = NO_CLIENT, of, now = response_tick();

	if (!b)
		return 0;
	if (!b->is_timed)
		b->is_timed = 1;
	for (__u32 i = 0; i < RESPONSE_CLIENTS; i++) {
		word = response_word(b, i);
		if (!word)
			continue;
		t = time_word(response_time(word, now));
		of = word >> RESPONSE_CLIENT_SHIFT;
		if (of == client)
			own = t;
		if (t >= longest) {
			if (of != longest_of)
				second = longest;
			longest = t;
			longest_of = of;
		} else if (of != longest_of && t > second) {
			second = t;
		}
	}
	return own > second ? own : second;
}

static __always_inline struct response_time ask_response(struct backend *b,
							 __u32 client)
{
	__u64 t = ask_time_word(b, client);

	return (struct response_time){ t, t >> 32 };
}

/* Where the word of a client goes: it takes the place of its last or of the oldest. */
static __always_inline __u32 index_of_response(const struct backend *b,
					       __u32 client, __u32 now)
{
	__u32 oldest = 0, most = 0;

	for (__u32 i = 0; i < RESPONSE_CLIENTS; i++) {
		__u64 word = response_word(b, i);
		__u32 age = response_age(word, now);

		if (!word || word >> RESPONSE_CLIENT_SHIFT == client)
			return i;
		if (age > most) {
			most = age;
			oldest = i;
		}
	}
	return oldest;
}

/*
 * A client has measured so many microseconds, or, with RESPONSE_AT_LEAST, has waited for
 * so long: then what is less than it knows says nothing. If two CPUs write at once one
 * measurement is lost.
 */
GLOBAL_FUNC int note_response(struct backend *b, __u32 client, __u64 us,
			      enum response_word at_least)
{
	struct response_time old;
	__u32 now, index;
	__u64 word;

	if (!b || client >= NO_CLIENT)
		return 0;
	if (us > RESPONSE_MOST_US)
		us = RESPONSE_MOST_US;
	now = response_tick();
	index = index_of_response(b, client, now);
	word = response_word(b, index);
	if (word >> RESPONSE_CLIENT_SHIFT != client)
		word = 0;
	old = response_time(word, now);
	if (at_least && (us <= old.least_us || us <= old.most_us))
		return 0;
	/* What was measured beats at once what was waited for in vain. */
	if (us < old.least_us && !(word & RESPONSE_AT_LEAST))
		us = old.least_us - ((old.least_us - us) >> RESPONSE_SHIFT);
	word = (__u64)client << RESPONSE_CLIENT_SHIFT |
	       (__u64)(now & RESPONSE_TICK_MASK) << RESPONSE_TICK_SHIFT |
	       at_least | us;
	*(volatile __u64 *)&b->responses[index % RESPONSE_CLIENTS] = word;
	return 0;
}

/*
 * Notes what a TCP socket that is about to be closed has seen of its backend. The
 * clock of microseconds also runs for what the kernel sends by itself later, such
 * as an acknowledgement; that of jiffies is coarse, but for data alone: the answer
 * took less than one more of them than lie between.
 */
static __always_inline void
note_exchange(struct backend *b, const struct tcp_sock *tp, __u32 client)
{
	__u32 received = BPF_CORE_READ(tp, inet_conn.icsk_ack.lrcvtime);
	__u32 sent = BPF_CORE_READ(tp, lsndtime);
	__u64 sent_us = BPF_CORE_READ(tp, first_tx_mstamp), us, most;

	if (elapsed_ticks(sent, received) ||
	    !BPF_CORE_READ(tp, bytes_received)) {
		us = BPF_CORE_READ(tp, srtt_us) >> SRTT_UNIT_SHIFT;
		most = elapsed(bpf_ktime_get_ns() / 1000, sent_us);
		if (BPF_CORE_READ(tp, bytes_sent) && most > us)
			us = most; /* an answer was due */
		note_response(b, client, us, RESPONSE_AT_LEAST);
		return;
	}
	if (elapsed_ticks(bpf_jiffies64(), received) * (__u64)tick_us * 1000 >
	    (__u64)RESPONSE_HALF_LIFE << RESPONSE_NS_SHIFT)
		return; /* it was long ago */
	us = elapsed(BPF_CORE_READ(tp, tcp_mstamp), sent_us);
	most = (elapsed_ticks(received, sent) + 1ULL) * tick_us;
	if (us > most)
		us = most;
	/* No answer is faster than those of TCP itself. */
	most = BPF_CORE_READ(tp, srtt_us) >> SRTT_UNIT_SHIFT;
	note_response(b, client, us > most ? us : most, 0);
}
