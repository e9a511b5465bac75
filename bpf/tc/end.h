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
 * Where the sequence numbers of both sides of a connection began, in units of 64 KiB: the
 * server's in the upper half. Of a packet that confirms a flow and what is known of its
 * reply direction.
 */
static __always_inline __u32 began_at(const struct packet *pkt, __u32 known)
{
	return (known & 0xffff0000) | bpf_ntohl(pkt->tcp_seq) >> 16;
}

/* The numbers of such a packet are so far from where they began, at most: 16 MiB. */
#define CLOSE_WINDOW 256

static __always_inline bool is_within(__be32 number, __u32 began)
{
	/* The packet that confirmed may have been the second one. */
	return (__u16)((bpf_ntohl(number) >> 16) - began + 1) <= CLOSE_WINDOW;
}

/*
 * Does a packet prove that a connection is over: a reset, or the second FIN? A blind guess of both
 * numbers succeeds once in 65,536, and a connection allows one: the true ends send right numbers
 * first, so a wrong one means that somebody guesses, and nothing is known any more. No proof is
 * possible where a side has sent more than 16 MiB. A reset without ACK proves nothing.
 */
static __always_inline bool proves_end(const struct packet *pkt,
				       const struct found *f,
				       const struct found *other)
{
	bool original = f->seen & FLOW_ORIGINAL;
	const struct found *reply = original ? other : f;
	__u32 began = *(volatile __u32 *)&reply->flow->known;
	__u32 ends = other->seen & FLOW_CLOSING ? TCP_FIN | TCP_RST : TCP_RST;

	if (!began || !(pkt->tcp_flags & ends) || !(pkt->tcp_flags & TCP_ACK))
		return false;
	if (is_within(original ? pkt->tcp_seq : pkt->tcp_ack, began) &&
	    is_within(original ? pkt->tcp_ack : pkt->tcp_seq, began >> 16))
		return true;
	set_known(reply, began, 0);
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
