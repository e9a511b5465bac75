/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the maps hold of other nodes, to which packets of clients are carried. The rules
 * of abi/types.h apply.
 */
#pragma once

#include "types.h"

/* The home of a backend, the node that it runs on: the ID of a peer, or one of these. */
enum home {
	HOME_UNKNOWN = 0, /* packets go there as to any address */
	HOME_HERE =
		1, /* this node, which has an element among the peers, too */
	FIRST_PEER = 2,
};

enum peer_flag {
	PEER_USABLE = 1 << 0, /* what begins is carried there */
	PEER_RETURNS =
		1 << 1, /* it may answer clients as the Service's address */
	PEER_SILENT = 1 << 2,  /* it answers no questions */
	PEER_OUTSIDE = 1 << 3, /* no node: a backend that takes the outer header
				* off, and passes nothing on */
};

/* How a packet goes around the homes that may know its connection; an outer header says so. */
enum ring_round {
	ROUND_WHOLE,  /* nobody was left out so far */
	ROUND_PASSED, /* a home that is silent was */
	ROUND_LAST,   /* the second one: nobody is left out */
};

/*
 * A node that packets are carried to. The last two are aligned so that the agent can
 * change them in one store, of a peer in use; all else stays what it is until no backend
 * has the peer as its home.
 */
struct peer {
	struct ip_addr theirs; /* what an outer header goes to */
	struct ip_addr ours;   /* and from */
	__u64 ring;   /* where it stands among homes: the same on all nodes */
	__u64 pad[2]; /* up to a cache line */
	/* The longest packet that gets there with its outer header, in bytes. */
	__u32 mtu __attribute__((aligned(8)));
	enum peer_flag flags;
};

#define PEER_WAYS 2 /* a power of two */

/*
 * By which next hop packets go to a peer that come by a device: what the kernel said last to a
 * CPU. Their number is that of devices by which they come in at most nodes; others share places.
 */
struct peer_way {
	__u32 came_by; /* ifindex */
	__u32 ifindex; /* of the device by which they leave */
	__u32 macs[3]; /* the addresses of their Ethernet header */
	__u16 mtu;     /* of that device, in bytes; 0: nothing was said */
	__u8 driven;   /* 1: drivers may send by it */
	__u8 turns;    /* 1: and return what came by it */
	__u32 epoch;   /* before the kernel was asked, see struct about */
	__u32 noted;   /* when it was, see flow_time */
};

struct peer_ways {
	struct peer_way way[PEER_WAYS];
};

/* What a CPU has carried to a peer, or got from it. */
struct peer_counts {
	__u64 carried;	     /* packets, also what this node passes on */
	__u64 carried_bytes; /* with their outer header */
	__u64 carried_syn; /* of the packets, those that begin a connection of TCP */
	__u64 carried_tcp; /* and those within one */
	__u64 passed_on; /* of the packets, those that had been carried before */
	__u64 received;	 /* packets that were carried here */
	/* The networks of clients, a bit by a hash of each, that began connections since the
	 * last of carried_tcp. */
	__u64 syn_networks;
	__u32 echo_time; /* the unit of time in which echoes were sent last */
	__u32 echoes;	 /* to it, then */
};

/*
 * A round of questions to a peer, see tc/echo.h. The agent writes it before it asks, and takes bits
 * from it.
 */
struct echo_round {
	__u64 nonce;		/* of its questions; 0: there are none */
	struct ip_addr service; /* one question comes back from it */
	__u64 back;		/* the questions that came back, a bit each */
};

#define ECHO_OF_SERVICE 1 /* of a round: an address of a Service answers it */
#define ECHO_MOST 63	  /* questions of a round at most */
#define ECHO_UNLIKE 63	  /* the bit that says that a node carries otherwise */

/* What a round and a question are, in the byte order of the node that asks. */
struct echo_question {
	__u64 nonce;
	__u32 peer;   /* its ID at the node that asks */
	__u32 number; /* in the round */
};

/* What the node adds that sends an echo. */
struct echo_answer {
	__u64 alike; /* its carry_alike */
	__u64 proof; /* see echo_proof() */
};

/* The payload of a question, whose answer is 0, and of its echo. */
struct echo_payload {
	struct echo_question question;
	struct echo_answer answer;
};

#define CUT_MOST 9216 /* bytes of payload: jumbo frames */
#define CUT_BEGIN 80  /* an IPv4 header, and more */

/* A packet while it is carried in pieces. */
struct cut_packet {
	__u8 begin[CUT_BEGIN];
	__u8 payload[2 * CUT_MOST]; /* of which one half is used */
};

/* How many packets within connections that nobody has came to this node since a time. */
struct stray_budget {
	__u64 since_ns;
	__u64 strays;
};

_Static_assert(sizeof(struct peer) == 64, "no hidden padding");
_Static_assert(sizeof(struct peer_ways) == 64, "a cache line");
_Static_assert(sizeof(struct echo_payload) == 32, "no hidden padding");
_Static_assert(offsetof(struct peer, flags) == offsetof(struct peer, mtu) + 4,
	       "one store");
