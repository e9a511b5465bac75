/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the maps hold of packets and their flows. The rules of abi/types.h apply. */
#pragma once

#include "types.h"

/* Where a packet is seen: on its way into the node, or out of it. */
enum hook {
	HOOK_IN = 1,
	HOOK_OUT = 2,
};

/* Both ends of a flow, in the direction of a packet; compared by words of 8 bytes. */
struct tuple {
	struct ip_addr src;
	struct ip_addr dst;
	__be16 src_port;
	__be16 dst_port;
	__u8 protocol;
	__u8 hook; /* enum hook */
	__u8 pad[2];
} __attribute__((aligned(8)));

/* The lower half of the state of a flow; the upper half is when it was noted. */
enum flow_flag {
	FLOW_TO_BACKEND = 1 << 0, /* from the client, chosen by us */
	FLOW_CLOSING = 1 << 1,	  /* FIN or RST was seen */
	FLOW_REFUSED = 1 << 2,	  /* to a port that answers with a refusal */
	FLOW_SEEN = 1 << 3,	  /* a packet came after it was made */
	FLOW_FROM_POD = 1 << 4,	  /* of a pod on this node: keeps its address */
	FLOW_REPLY = 1 << 5,	  /* to the client of a flow to a backend */
	FLOW_BYPASS = 1 << 6,	  /* to a backend past the Services */
	/* Carried to a backend outside, whose answers never come here: one direction. */
	FLOW_KEPT = FLOW_TO_BACKEND | FLOW_BYPASS,
	FLOW_HALF_OPEN = 1 << 7,   /* makes room, in both directions */
	FLOW_BROKEN = 1 << 8,	   /* its backend has left the Service */
	FLOW_COUNTED = 1 << 9,	   /* in flight, in the original direction */
	FLOW_UNSENT = 1 << 10,	   /* what went there ended on this node */
	FLOW_ORIGINAL = 1 << 11,   /* the direction of the first packet */
	FLOW_DATAGRAMS = 1 << 12,  /* not of TCP */
	FLOW_GENERATION = 1 << 13, /* two bits that count who has had the way */
	FLOW_BUSY = 1 << 15, /* the way is being given to a flow, or freed */
};

enum flow_time {
	FLOW_TIME_SHIFT = 16,	 /* of a state */
	FLOW_TIME_NS_SHIFT = 28, /* of the coarse clock: about 0.27 s */
	/* Idle seconds after which a flow may make room for another. */
	IDLE_ENDED_S = 60, /* closed by both sides, or never confirmed */
	IDLE_ESTABLISHED_S = 7440, /* RFC 5382: two hours and four minutes */
};

#define FLOW_WAYS 7
#define FLOW_FACTORS 12
#define PORT_NETWORKS 4

/*
 * One direction of a flow, in a cache line: what a packet with a tuple becomes. At
 * each hook one end changes: the destination on the way in, the source on the way
 * out. Both ports may.
 */
struct flow {
	struct ip_addr src; /* up to the hook as struct tuple */
	struct ip_addr dst;
	__be16 src_port;
	__be16 dst_port;
	__u8 protocol;
	__u8 hook;	   /* enum hook */
	__u16 checksum;	   /* of target and key, see flow/table.h */
	struct ip_addr to; /* the end that changes */
	__be16 to_src_port;
	__be16 to_dst_port;
	/*
	 * Of the original direction the backend ID, 0 if there is none. Of the reply:
	 * of TCP the sequence number after its SYN, and once it is confirmed where the
	 * numbers of both sides are, see tc/end.h, 0 after a wrong guess of them; of
	 * others when the flow began, as the clock >> FLOW_TIME_NS_SHIFT.
	 */
	__u32 known;
} __attribute__((aligned(8)));

enum set_flag {
	SET_OVERFLOW = 1, /* the second set of its flows has some, too */
	SET_MOVING = 2,	  /* a CPU moves a flow to its second set */
};

/* Flows with the same hash share a set; its first line says which ways are theirs. */
struct flow_set {
	__u32 tag[FLOW_WAYS]; /* of the hash, 0: the way is free */
	__u32 overflow;	      /* enum set_flag */
	__u32 state[FLOW_WAYS];
	__u32 next; /* the way behind the one that made room last */
	struct flow way[FLOW_WAYS];
} __attribute__((aligned(8)));

/*
 * What the packets of the flows of a set were, by way, each line with a word to spare. Nothing
 * of it is atomic: where two CPUs have packets of one direction at the same time, those of one
 * of them may not count.
 */
struct flow_traffic {
	__u64 counted[FLOW_WAYS + 1]; /* enum packet_count */
	__u64 taken[FLOW_WAYS + 1];   /* what of it Service and backend have */
} __attribute__((aligned(8)));

/* Random numbers, for as long as there is a table in whose order flows are by them. */
struct flow_factors {
	__u64 factor[FLOW_FACTORS];
};

/* Flows of one network, or of one kind, that hold source ports of which one is wanted. */
struct port_holder {
	__u32 network; /* of their clients, see network_of() */
	__u32 flows; /* so many of them were met, of a network less some of the others */
	__u32 most_idle;  /* of them, in units of flow_time */
	__be16 idle_port; /* of that one, 0 for none */
	__u8 pad[2];
};

/* A flow that is about to begin, and the direction of it that is being added. */
struct new_flow {
	struct tuple sent; /* of its first packet */
	struct tuple to;   /* what that becomes */
	__u32 service;	   /* ID, 0 where it is not known */
	__u32 backend_id;
	enum flow_flag flags; /* of the original direction */

	__u32 added_flags; /* of the direction, with what is known of it */
	__u32 added_known;
	__u32 added_state; /* that it got, 0 if it was there before */
	__u32 added_place; /* see place_of() */
	__u32 pad;
	struct tuple key;
	struct tuple becomes;
	__u64 hash;
	__u64 now_ns;

	/* The search for a source port. */
	__u32 number; /* where it begins */
	__u32 result; /* enum added */
	__u32 taken;  /* tries that met flows which go on */
	__u32 from; /* the try that is next, after one by a port that others have */
	struct port_holder half_open;
	struct port_holder one_sided; /* see is_one_sided() */
	struct port_holder any;
	struct port_holder networks[PORT_NETWORKS]; /* that hold the most */
};

#define EXPRESS_WAYS 2

/*
 * What becomes of the packets of a flow that goes on to another node: what TC did with
 * the last one, at both devices, and what the driver may repeat. Two cache lines.
 */
struct express {
	struct tuple came;   /* into the node */
	struct tuple leaves; /* out of it */
	__u8 macs[12];	     /* the addresses of its Ethernet header then */
	__u32 ifindex;	     /* of the device by which it leaves */
	__u32 epoch;	     /* see struct about */
	__u32 noted;	     /* when its flow was, see flow_time */
	__u32 mtu; /* in bytes, without the Ethernet header; 0: there is no entry */
	__u16 l4_diff;	/* what both do to a sum over addresses and ports */
	__u16 ip_diff;	/* the same over addresses */
	__u32 turns_at; /* what came by this device goes by XDP_TX; 0: by none */
	__u32 counts_at; /* the place of the flow by which they come */
	__u32 pad[2];
} __attribute__((aligned(8)));

struct express_set {
	struct express way[EXPRESS_WAYS];
};

/* A packet between the device where it came and the one where it leaves. */
struct passage {
	struct tuple came; /* as it came in */
	struct tuple now;
	__u32 epoch; /* before it was sent on, see struct about */
	__u32 noted; /* when its flow was, if more like it may be repeated, or 0 */
	__u32 mtu;	 /* of the route by which it leaves, in bytes */
	__u32 ifindex;	 /* of the device by which it leaves; 0: it does not */
	__u32 repeats;	 /* 1: it is there, and makes an express entry */
	__u32 turns_at;	 /* see struct express */
	__u32 repeated;	 /* 1: it leaves as it is to be, see tc/repeat.h */
	__u32 counts_at; /* see struct express */
} __attribute__((aligned(8)));

/* A fragment that has no ports belongs to a datagram whose first one had. */
struct fragment_key {
	struct ip_addr src;
	struct ip_addr dst;
	__be32 id;
	__u8 protocol; /* of IPv4; with IPv6 only the first one may know */
	__u8 hook;     /* enum hook */
	__u8 pad[2];
};

/* The ports of every protocol with ports are its first four bytes. */
struct ports {
	__be16 src;
	__be16 dst;
};

/* A datagram that comes in fragments. */
struct datagram {
	struct ports ports;
	__u8 protocol;
	__u8 seen; /* the first one; else the two above mean nothing */
	__u16 noted; /* when that was, or the one that was queued first, as flows have times */
	__u32 queued; /* how many came before it */
};

#define QUEUED_FRAGMENTS 48 /* of a datagram: 64 KiB in Ethernet frames */
#define QUEUED_LEN 2044	    /* bytes of a frame */

/* A fragment that waits for the first one of its datagram. */
struct queued_key {
	struct fragment_key fragment;
	__u32 number;
};

struct queued_frame {
	__u32 len;
	__u8 bytes[QUEUED_LEN];
};

/* Clients that may use a Service port, in the order of bits that a trie needs. */
struct source_range {
	__u32 prefixlen; /* of service and addr together, in bits */
	__u32 service;
	struct ip_addr addr;
};

enum device_flag {
	DEVICE_POD = 1 << 0,  /* the node's end of a pod's device */
	DEVICE_L3 = 1 << 1,   /* packets have no Ethernet header */
	DEVICE_XDP = 1 << 2,  /* its driver sends what XDP gives it */
	DEVICE_VETH = 1 << 3, /* and XDP_TX may wake nobody at its other end */
	DEVICE_TAKEN =
		1 << 4, /* a program of others is there, and may call ours */
	DEVICE_TRUNK = 1 << 5,	/* VLAN devices on it have programs, too */
	DEVICE_SHARED = 1 << 6, /* it leads to backends on this node, too */
};

/*
 * A network device with programs, by ifindex. Index 0 is the node itself, with
 * the addresses that its default routes give.
 */
struct device {
	struct ip_addr ip4; /* that flows leave with, all zero for none */
	struct ip_addr ip6;
	enum device_flag flags;
};

struct reset_budget {
	__u64 since_ns; /* coarse clock */
	__u64 spent;
};

_Static_assert(sizeof(struct tuple) == 40, "no hidden padding");
_Static_assert(sizeof(struct flow) == 64, "one cache line");
_Static_assert(sizeof(struct flow_set) == 512, "eight cache lines");
_Static_assert(sizeof(struct flow_traffic) == 128, "two cache lines");
_Static_assert(sizeof(struct express) == 128, "two cache lines");
