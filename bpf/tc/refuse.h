/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Refusals of packets. */
#pragma once

#include "../lib/verdict.h"
#include "packet.h"

/*
 * Refuses a packet with the ends that it came with: VERDICT_REFUSE, see lib/verdict.h. Not inlined,
 * for the stack of callers.
 */
static __noinline int refuse_packet(const struct packet *pkt,
				    enum drop_reason reason, __u32 service)
{
	return refuse(reason, service, &pkt->tuple, pkt->ifindex);
}
