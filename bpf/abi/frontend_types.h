/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the maps hold of frontends, and of the tables and backends behind them.
 * The rules of abi/types.h apply.
 */
#pragma once

#include "types.h"

#define SLOTS_PER_CHUNK 16

/*
 * From here on a slot is in no map: without this bit it is the backend ID that it
 * names. So a table whose backends have consecutive IDs, a dense one, takes no slots,
 * and no memory is read between a frontend and its backend.
 */
enum slot_number {
	DENSE_SLOT = 0x80000000,
};

/* slots[offset] … slots[offset + size - 1]; or, of a dense table, as many IDs. */
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
	ALGORITHM_LATENCY, /* of two random ones that with the lower response time
			      × (in flight + 1) */
	ALGORITHMS,
};

/*
 * What a class of clients gets: a table, and how to choose from it. It is read
 * and written as one word, so that the two always belong together.
 */
struct view {
	__u32 offset;
	__u32 size; /* of the table; the top 8 bits are the algorithm */
};

/* How the size of a view is put together. */
enum view_size {
	VIEW_SIZE_MASK = 0xffffff,
	VIEW_ALGORITHM_SHIFT = 24,
	/* With the algorithm: weights follow the slots, one for each. */
	ALGORITHM_WEIGHTED = 0x80,
};

/* The views of a frontend. The order is that of pkg/lb. */
enum view_index {
	VIEW_INTERNAL, /* for clients on this node */
	VIEW_EXTERNAL, /* for clients elsewhere */
	CLIENT_VIEWS,
	/* Fallbacks, where the backends of a client's view are all ejected. */
	VIEW_FALLBACK_ZONE = CLIENT_VIEWS, /* those of the node's zone */
	VIEW_FALLBACK_ALL,		   /* those of all zones */
	VIEWS,
};

enum frontend_flag {
	/* The table is empty only because the traffic policy is Local. This and
	 * FRONTEND_FALLS_BACK go by client: << VIEW_INTERNAL or VIEW_EXTERNAL. */
	FRONTEND_NO_LOCAL = 1 << 0,
	/* The kind of address; none of them is a ClusterIP. */
	FRONTEND_NODE_PORT = 1 << 2,
	FRONTEND_LOAD_BALANCER = 1 << 3,
	FRONTEND_EXTERNAL_IP = 1 << 4,
	/* Only clients in source_ranges may use it. */
	FRONTEND_SOURCE_RANGES = 1 << 5,
	/* Ejected backends are avoided. */
	FRONTEND_PASSIVE_HEALTH = 1 << 6,
	/* Where the backends of a view are all ejected, fallbacks are used. */
	FRONTEND_FALLS_BACK = 1 << 7,
	/* Packets are carried to the home of their backend: all nodes choose alike. */
	FRONTEND_CARRIED = 1 << 9,
	/* The Service has given it up: new clients do not find it, flows keep its members. */
	FRONTEND_FORMER = 1 << 10,
	/* Connected UDP sockets are closed when their backend leaves. */
	FRONTEND_UDP_CLOSE = 1 << 11,
	/* Why a client's view has its backends, four bits for each: all but Local are for people. */
	FRONTEND_WHY_SHIFT = 16,
	FRONTEND_WHY_BITS = 4,
	FRONTEND_WHY = 0xf << FRONTEND_WHY_SHIFT,
	FRONTEND_WHY_LOCAL = 8 << FRONTEND_WHY_SHIFT, /* the traffic policy */
};

/* The search for a frontend in the frontends map, see lb/frontend.h. */
enum frontend_search {
	/* Protocols of a place where no frontend is. */
	FRONTEND_NONE = 0,	/* the search ends here */
	FRONTEND_REMOVED = 255, /* one was here: the search goes on */

	/*
	 * Places that are searched. At most half of the map is taken: of 65,536
	 * frontends that which is furthest from where its hash says is some 30
	 * places away, on average it is half a place. If none is free within
	 * reach, the agent replaces the map by one with other factors.
	 */
	FRONTEND_REACH = 64,
};

/*
 * An address that clients use, and what stands behind it. Tables and views are aligned so
 * that the agent can change each in one store. It is one cache line.
 */
struct frontend {
	struct view views[CLIENT_VIEWS] __attribute__((aligned(8)));
	struct table members __attribute__((
		aligned(8))); /* backends the Service still has */
	/* Objects that do not know dense tables have service elsewhere. So they never
	 * share this map with one that does. */
	__u32 service; /* index into services, never 0 */
	enum frontend_flag flags;
	__u32 affinity_timeout_s; /* idle seconds; 0: no session affinity */
	__u32 place;		  /* its own index */
	__u32 slow_start_s;	  /* seconds; 0: none */
	struct addr_port at; /* protocol: FRONTEND_NONE, …, if there is none */
};

/* What only frontends with FRONTEND_FALLS_BACK need. */
struct fallbacks {
	struct view to[VIEWS - CLIENT_VIEWS] __attribute__((aligned(8)));
	__u32 spill; /* of 2^32 connections so many use VIEW_FALLBACK_ALL at once */
	__u32 pad;
};

/* Which clients avoid a backend. */
enum ejection {
	EJECTION_NONE,
	EJECTION_ONE,	    /* the client that failed last */
	EJECTION_ALL,	    /* all clients, by the word of several */
	EJECTION_CONFIRMED, /* the same, and a retry or a probe failed */
} __attribute__((packed));

/* Clients of which a backend keeps what they have measured. */
#define RESPONSE_CLIENTS 8

/*
 * What a client has measured is a word, so that it is never half of one client and half
 * of another; 0 is none. From the lowest bit on: microseconds, whether it takes so long
 * at the least, when that was measured, the client.
 */
enum response_word {
	RESPONSE_US_BITS = 20,
	/*
	 * A lower bound only: from a handshake, or from a client that gave up waiting.
	 */
	RESPONSE_AT_LEAST = 1 << RESPONSE_US_BITS,
	RESPONSE_TICK_SHIFT = RESPONSE_US_BITS + 1,
	RESPONSE_TICK_BITS = 27, /* a hundred days */
	RESPONSE_CLIENT_SHIFT = RESPONSE_TICK_SHIFT + RESPONSE_TICK_BITS,
	RESPONSE_NS_SHIFT = 26, /* of a tick, about 67 ms */
};

/*
 * Where traffic goes, and how it is there: a cache line, one of response times, which few
 * algorithms ask for, and one of what went there. The agent writes the address, and thereby clears the rest, and
 * the home; programs write the rest. Times without a unit are those of health_time().
 */
struct backend {
	struct addr_port to;   /* port 0: no backend has this ID */
	__s32 in_flight;       /* connections and flows that are open */
	__u32 failed_by;       /* hash of the client that failed last */
	__u32 next_retry;      /* of an ejected backend */
	__u32 ejected_since_s; /* coarse clock */
	__u32 taken_at;	       /* when it took a connection last */
	__u32 slow_start_from; /* 0: not yet begun */
	__u16 failures;	       /* in a row, of all clients */
	__u8 own_failures;     /* in a row, of the client that failed last */
	__u8 votes;	       /* failures in a row, each by another client */
	__u8 retries;	       /* since it was ejected */
	enum ejection ejection;
	__u8 is_timed; /* an algorithm asks for response times */
	__u8 scarce_at; /* when source ports to it ran short last, 0: they did not */
	__u32 home; /* ID of the peer that it runs on, or enum home; of the agent */
	__u64 connections; /* that began since the agent wrote the address */
	__u64 responses[RESPONSE_CLIENTS]; /* enum response_word */
	struct traffic traffic;
};

#define FORMER_OWNERS 7

/*
 * A slot of a table in use that was changed. The backends that it named before, the last
 * one first, none twice, are those that the Service had still when the slot was changed.
 */
struct slot_change {
	__u64 at_ns;		  /* coarse clock */
	__u32 to;		  /* backend ID */
	__u32 was[FORMER_OWNERS]; /* backend IDs, up to the first 0 */
};

_Static_assert(sizeof(struct slot_chunk) == 64, "one cache line");
_Static_assert(sizeof(struct frontend) == 64, "one cache line");
_Static_assert(offsetof(struct backend, responses) == 64, "one cache line");
_Static_assert(offsetof(struct backend, traffic) == 128, "and another one");
_Static_assert(sizeof(struct backend) == 192, "and one of traffic");
