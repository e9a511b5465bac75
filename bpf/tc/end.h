/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The end of TCP connections, which strangers may forge: they send a reset or a FIN with
 * addresses and ports of others. The true ends ignore it, since its sequence number is
 * wrong. So what one side says is noted (FLOW_CLOSING), and only what proves that both are
 * done has the flow make room as a half-open one, and its client's port begin anew.
 */
#pragma once

#include "../abi/maps.h"
#include "../flow/state.h"
#include "../flow/table.h"
#include "flow.h"
#include "packet.h"

/*
 * Where the sequence numbers of both sides of a connection are, in units of 64 KiB: the server's
 * in the upper half. First of a packet that confirms a flow and what is known of its reply
 * direction, where they began.
 */
static __always_inline __u32 began_at(const struct packet *pkt, __u32 known)
{
	return (known & 0xffff0000) | bpf_ntohl(pkt->tcp_seq) >> 16;
}

/* The same of a packet of the reply direction, which has both numbers. */
static __always_inline __u32 numbers_of(const struct packet *pkt)
{
	return (bpf_ntohl(pkt->tcp_seq) & 0xffff0000) |
	       bpf_ntohl(pkt->tcp_ack) >> 16;
}

/* True numbers are so far from these at most, before or behind: 8 MiB. */
#define CLOSE_NUMBERS 128

/* What is known goes along before they are half as far. */
#define FAR_NUMBERS 64

static __always_inline bool is_within(__be32 number, __u32 known, __u16 reach)
{
	return (__u16)((bpf_ntohl(number) >> 16) - known + reach) < 2 * reach;
}

/* Are both numbers of a packet near what is known? */
static __always_inline bool has_numbers(const struct packet *pkt, bool original,
					__u32 known, __u16 reach)
{
	return is_within(original ? pkt->tcp_seq : pkt->tcp_ack, known,
			 reach) &&
	       is_within(original ? pkt->tcp_ack : pkt->tcp_seq, known >> 16,
			 reach);
}

/* Is a packet of a confirmed flow of TCP so far on that it has to be noted? */
static __always_inline bool is_far_on(const struct packet *pkt,
				      const struct flow *flow, __u32 state)
{
	__u32 known;

	if (state & (FLOW_ORIGINAL | FLOW_DATAGRAMS))
		return false;
	known = *(volatile __u32 *)&flow->known;
	return known && !has_numbers(pkt, false, known, FAR_NUMBERS);
}

/*
 * Has what is known go along with a packet of the reply direction of a confirmed flow, which
 * is no proof. Wrong numbers are a guess, as those of a proof are: they would lead astray.
 */
static __always_inline void go_along(const struct packet *pkt,
				     const struct found *f, __u32 known)
{
	if (known && (pkt->tcp_flags & (TCP_ENDS | TCP_ACK)) == TCP_ACK)
		set_known(f, known,
			  has_numbers(pkt, false, known, CLOSE_NUMBERS) ?
				  numbers_of(pkt) :
				  0);
}

/*
 * Does a packet prove that a connection is over: a reset, or the second FIN? A blind guess of both
 * numbers succeeds once in 65,536, and a connection allows one: the true ends send right numbers
 * first, so a wrong one means that somebody guesses, and nothing is known any more. A reset
 * without ACK proves nothing.
 */
static __always_inline bool proves_end(const struct packet *pkt,
				       const struct found *f,
				       const struct found *other)
{
	bool original = f->seen & FLOW_ORIGINAL;
	const struct found *reply = original ? other : f;
	__u32 known = *(volatile __u32 *)&reply->flow->known;
	__u32 ends = other->seen & FLOW_CLOSING ? TCP_FIN | TCP_RST : TCP_RST;

	if (!known || !(pkt->tcp_flags & ends) || !(pkt->tcp_flags & TCP_ACK))
		return false;
	if (has_numbers(pkt, original, known, CLOSE_NUMBERS))
		return true;
	set_known(reply, known, 0);
	return false;
}

/* Does a packet of TCP end a flow? The other direction may be NULL. */
static __always_inline void note_end(const struct packet *pkt,
				     const struct found *f,
				     const struct found *other)
{
	if (!(pkt->tcp_flags & TCP_RST) &&
	    !(pkt->tcp_flags & TCP_FIN && other && other->seen & FLOW_CLOSING))
		return;
	flow_closed(f);
	if (other)
		flow_closed(other);
}
