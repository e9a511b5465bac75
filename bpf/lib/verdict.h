/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a step says to its caller, and how refusals are counted. */
#pragma once

#include "../abi/maps.h"
#include "told.h"

/*
 * Steps that are verified once, wherever they are called from, instead of anew
 * on every path that leads to them. They must take any pointer.
 */
#define GLOBAL_FUNC __noinline __attribute__((visibility("default")))

enum verdict {
	VERDICT_CONTINUE, /* on to the next step */
	VERDICT_PASS,	  /* not for a Service: leave it alone */
	VERDICT_REFUSE,	  /* for a Service that cannot take it; counted */
	VERDICT_WAIT,	  /* for a Service to come, see sock/reconnect.h */
	VERDICT_TAKEN, /* not now: see sock/shared_port.h and sock/reconnect.h */
	VERDICT_BEGIN,	 /* a packet begins a flow */
	VERDICT_FOLLOW,	 /* another CPU has begun it meanwhile */
	VERDICT_REWRITE, /* a packet becomes another */
	VERDICT_RESET,	 /* a packet is answered with a TCP reset */
	VERDICT_ASK,	 /* does the kernel track its connection? */
	VERDICT_CARRY,	 /* a packet goes to the home of its backend */
	VERDICT_OUTSIDE, /* a packet goes to a backend outside, by pkt->slot */
	VERDICT_ABOUT, /* an ICMP error, about a packet of a flow not known here */
	VERDICT_ECHO,  /* a question of a peer goes back to it */
	VERDICT_OUTER, /* a packet passes unless it is forged, see tc/forged.h */
};

static __always_inline struct counters *cpu_counters(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&counters, &zero);
}

/* Adds one to a field of struct counters. Never decides what happens. */
#define count(field)                                       \
	do {                                               \
		struct counters *counted = cpu_counters(); \
		if (counted)                               \
			counted->field++;                  \
	} while (0)

/*
 * Counts a refusal, and tells of a packet that is refused, if somebody looks: its ends are those
 * that it came with, as far as they are known. Sockets have none: what traces them sees itself
 * that they were refused. Not inlined: it is rare, and the shared line of the Service then costs
 * nothing that hurts.
 */
static __noinline enum verdict refuse(enum drop_reason reason, __u32 service,
				      const struct tuple *ends, __u32 ifindex)
{
	struct service *s = bpf_map_lookup_elem(&services, &service);

	if (reason >= DROP_REASONS)
		return VERDICT_REFUSE;
	count(drops[reason]);
	if (s && service)
		__sync_fetch_and_add(&s->drops[reason], 1);
	if (ends && are_drops_traced())
		tell_refused(reason, service, ends, ifindex);
	return VERDICT_REFUSE;
}
