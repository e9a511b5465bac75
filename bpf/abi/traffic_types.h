/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What is counted of traffic. The rules of abi/types.h apply. */
#pragma once

#include <linux/types.h>

/*
 * How a backend failed a connection. The comments are the meanings in docs/metrics.md: a test
 * writes them there.
 */
enum failure {
	/* the backend refused the connection */
	FAILURE_REFUSED,
	/*
	 * the backend did not answer until TCP or the client gave up, or, of a
	 * connection that stood, acknowledged nothing any more; of a flow, it did
	 * not answer the first SYN, which the client sent again
	 */
	FAILURE_TIMED_OUT,
	/* an ICMP error said that there is no way to the backend */
	FAILURE_UNREACHABLE,
	/*
	 * a connection that stood was reset by the backend; of a flow, if neither
	 * side had closed it
	 */
	FAILURE_RESET,
	FAILURES,
};

/* Which way traffic goes. */
enum direction {
	TO_BACKEND,
	FROM_BACKEND,
	DIRECTIONS,
};

/*
 * The traffic of a Service port, or of a backend: a cache line. Bytes are payload: of TCP
 * sockets on this node, and of the packets of flows. Packets are those of flows.
 */
struct traffic {
	__u64 bytes[DIRECTIONS];
	__u64 failures[FAILURES];
	__u64 packets[DIRECTIONS];
};

/*
 * How long connects take is counted in buckets, each up to twice the time of the one
 * before: the first up to 2^-15 s, the last one longer than 2^3 s.
 */
enum connect_time {
	CONNECT_TIMES = 20,
	CONNECT_TIME_SHIFT = 5, /* of the first one's bound, in 2^-20 s */
};

/*
 * What the packets of a direction of a flow were is one word, which goes up: how many, and below
 * their payload in bytes. Of two words the difference is exact up to 64 GiB, or 2^28 packets.
 */
enum packet_count {
	PACKET_COUNT_SHIFT = 36, /* of how many there were */
};

/* The payload of a connection so far, in bytes each way. */
struct payload {
	__u64 bytes[DIRECTIONS];
};
