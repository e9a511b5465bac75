/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What those who trace are told of packets. The rules of abi/types.h apply. */
#pragma once

#include "flow_types.h"

enum told_limit {
	TOLD_MOST = 20,	    /* packets that each CPU tells of in a time, */
	TOLD_EACH_MS = 200, /* which is this */
	TOLD_PACKETS = 64,  /* that are kept: those of three such times */
};

/* What became of a packet: at a driver, or else at TC. */
enum told_verdict {
	TOLD_PASSED, /* to TC, as it came */
	TOLD_REPEATED,
	TOLD_CARRIED,
	TOLD_CARRIED_BY_TC, /* may begin a connection, which has no flow here */
	TOLD_REFUSED,
};

/* A packet that was told of. */
struct told_packet {
	__u64 number; /* of those of this CPU, from 1 on; 0 while it is written */
	__u64 at_ns; /* monotonic clock */
	__u32 ifindex;
	enum told_verdict verdict;
	struct tuple came;
	/* Of one that is carried the outer addresses; of one that is passed or refused nothing. */
	struct tuple leaves;
	__u32 service;		 /* of one that is refused, 0: not known, */
	enum drop_reason reason; /* and why it is */
};

/* What a CPU tells: each packet stands in the place of the one 64 before it. */
struct told_packets {
	__u64 since_ns; /* when the time began in which these were told, monotonic: */
	__u32 told;
	/* Bytes in the first buffer of the packet that the program has, 0: of none to tell of. */
	__u32 len;
	__u64 last;	/* number of the last packet */
	__u64 left_out; /* packets that were too many to tell of */
	struct told_packet packet[TOLD_PACKETS];
};
