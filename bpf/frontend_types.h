/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the maps hold of frontends, and of the tables and backends behind them.
 * The rules of types.h apply.
 */
#pragma once

#include "types.h"

#define SLOTS_PER_CHUNK 16

/* slots[offset] … slots[offset + size - 1]. */
struct table {
	__u32 offset;
	__u32 size;
};

/* Array elements are padded to 8 bytes, so slots come a cache line at a time. */
struct slot_chunk {
	__u32 backend[SLOTS_PER_CHUNK]; /* backend IDs, 0 is none */
};

/*
 * How an index into a table is chosen. The order is that of pkg/lb.
 */
enum algorithm {
	ALGORITHM_RANDOM,
	ALGORITHM_RR,  /* one after the other; the cursor is behind the slots */
	ALGORITHM_WRR, /* the same; the planner repeats backends by weight */
	ALGORITHM_MAGLEV, /* keyed hash of the flow */
	ALGORITHM_STABLE, /* the same, into a table that is filled otherwise */
	ALGORITHM_SH,	  /* keyed hash of the client's address */
	ALGORITHM_DH,	  /* keyed hash of the frontend's address */
	ALGORITHM_LC,	  /* fewest connections in flight */
	ALGORITHM_WLC,	  /* the same, by weight */
	ALGORITHM_SED, /* shortest expected delay: (in flight + 1) by weight */
	ALGORITHM_NQ,  /* an idle one, otherwise as SED */
	ALGORITHM_P2C, /* of two random ones that with fewer in flight */
	ALGORITHM_LATENCY, /* of two random ones that with the lower answer time
			      × (in flight + 1) */
	ALGORITHMS,
};

/* In the place of an algorithm: weights follow the slots, one for each. */
#define ALGORITHM_WEIGHTED 0x80

/*
 * What a class of clients gets: a table, and how to choose from it. It is read
 * and written as one word, so that the two always belong together.
 */
struct view {
	__u32 offset;
	__u32 size; /* of the table; the top 8 bits are the algorithm */
};

#define VIEW_SIZE_MASK 0xffffff
#define VIEW_ALGORITHM_SHIFT 24

enum frontend_flag {
	/* The table is empty only because the traffic policy is Local. */
	FRONTEND_INTERNAL_NO_LOCAL = 1 << 0,
	FRONTEND_EXTERNAL_NO_LOCAL = 1 << 1,
	/* The kind of address; none of them is a ClusterIP. */
	FRONTEND_NODE_PORT = 1 << 2,
	FRONTEND_LOAD_BALANCER = 1 << 3,
	FRONTEND_EXTERNAL_IP = 1 << 4,
	/* Only clients in source_ranges may use it. */
	FRONTEND_SOURCE_RANGES = 1 << 5,
	/* Suspects are avoided. */
	FRONTEND_PASSIVE_HEALTH = 1 << 6,
	/* Where the backends of a view are all suspects, wider ones are asked. */
	FRONTEND_INTERNAL_WIDENS = 1 << 7,
	FRONTEND_EXTERNAL_WIDENS = 1 << 8,
	/* Bits 16 to 23 say why the views have their backends, for people. */
};

/*
 * What stands behind an address. Tables and views are aligned so that the agent
 * can change each in one store. What connect() asks for comes first. It is one
 * cache line.
 */
struct frontend {
	struct view internal
		__attribute__((aligned(8))); /* for clients on this node */
	enum frontend_flag flags;
	__u32 affinity_timeout_s; /* idle seconds; 0: no session affinity */
	struct view external
		__attribute__((aligned(8))); /* for clients elsewhere */
	struct table known __attribute__((
		aligned(8))); /* backends the Service still has */
	__u32 service;	      /* index into services, never 0 */
	__u32 id;	      /* its own index */
	struct view wider[2]
		__attribute__((aligned(8))); /* of the zone, of everywhere */
	__u32 spill;	    /* to everywhere at once: of 2^32 connections */
	__u32 slow_start_s; /* seconds; 0: none */
};

/*
 * Where traffic goes, and how it is there: one cache line. The agent writes the
 * address, and thereby clears the rest; programs write the rest.
 */
struct backend {
	struct addr_port to;	  /* port 0: no backend has this ID */
	__s32 in_flight;	  /* connections and flows that are open */
	__u32 answer_us;	  /* answer time as measured last, 0: unknown */
	__u32 failures;		  /* in a row */
	__u64 answer_at_ns;	  /* coarse clock; 0: nobody asks for it */
	__u64 next_trial_ns;	  /* coarse clock, of a suspect */
	__u32 trials;		  /* that a suspect was given */
	__u32 suspect_since_s;	  /* coarse clock; 0: it is none */
	__u64 slow_start_from_ns; /* coarse clock; 0: not yet begun */
};

/* A slot of a table in use that was changed. */
struct slot_change {
	__u32 from; /* backend ID */
	__u32 to;
	__u64 at_ns; /* coarse clock */
};

_Static_assert(sizeof(struct slot_chunk) == 64, "one cache line");
_Static_assert(sizeof(struct frontend) == 64, "one cache line");
_Static_assert(sizeof(struct backend) == 64, "one cache line");
