/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the header of TCP says of a flow. */
#pragma once

#include "ports.h"

/* Who acknowledges so many bytes after a SYN has seen it: one guess in 4096. */
#define HANDSHAKE_WINDOW (1 << 20)

#define TCP_SEQ_OFF 4

/* The numbers of a TCP header. */
struct tcp_seq {
	__be32 seq;
	__be32 ack;
};

/* What TCP says about a connection, of which a packet came by a way. */
static __always_inline void
note_tcp(const struct packet *pkt, const struct tcp_seq *seq, struct flow *flow)
{
	if (pkt->tcp_flags & (TCP_FIN | TCP_RST)) {
		flow->flags |= FLOW_CLOSING;
	} else if (pkt->tcp_flags & TCP_SYN) {
		flow->flags &= ~FLOW_CLOSING;
		flow->next_seq = bpf_ntohl(seq->seq) + 1;
	}
}
