/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What is left to do once a packet of a flow is noted. A Service is found by what stands in
 * the flow, for which stacks have room only where a packet is followed, not where it is noted.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../flow/table.h"
#include "../lb/frontend.h"
#include "../lb/health.h"
#include "../lb/traffic.h"
#include "../lib/addr.h"
#include "flow.h"

enum noted {
	NOTED_MISSING = 1,   /* the other direction is not there */
	NOTED_CONFIRMED = 2, /* a connection of TCP to a backend counts */
	NOTED_FAILED = 4,    /* the backend has failed one, see below */
	NOTED_TO_COUNT = NOTED_CONFIRMED | NOTED_FAILED,
	NOTED_FAILURE_SHIFT = 3, /* of enum failure, with NOTED_FAILED */
};

/*
 * Counts for a backend that it has failed a connection; returns enum noted, by which that is
 * counted for the Service, too.
 */
static __always_inline __u32 failed_by(struct backend *b, enum failure how)
{
	if (!count_traffic)
		return 0;
	count_failure(NULL, b, how);
	return NOTED_FAILED | how << NOTED_FAILURE_SHIFT;
}

/* The Service of a flow to a backend, given one of its directions; 0 if its frontend is gone. */
static __always_inline __u32 service_of_flow(const struct found *found)
{
	const struct flow *flow = found->flow;
	bool reply = found->seen & FLOW_REPLY;
	struct addr_port at = {
		.addr = reply ? flow->to : flow->dst,
		.port = reply ? flow->to_src_port : flow->dst_port,
		.protocol = flow->protocol,
	};

	return service_at(&at);
}

/*
 * Counts a connection of TCP that is confirmed, given its original direction, or that its
 * backend has failed, given either. Not inlined, for the stack of the caller.
 */
static __noinline int count_noted(const struct found *f, __u32 noted)
{
	__u32 service = service_of_flow(f), how = noted >> NOTED_FAILURE_SHIFT;
	struct backend *b;

	if (noted & NOTED_CONFIRMED) {
		b = flow_backend(f->flow);
		if (b)
			count_connection(service, b);
	} else if (how < FAILURES) {
		count_failure(service_named(service), NULL, how);
	}
	return 0;
}
