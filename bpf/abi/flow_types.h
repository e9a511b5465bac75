/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the maps hold of packets and their flows. The rules of abi/types.h apply. */
#pragma once

#include "types.h"

/* Where a packet is seen: on its way into the node, or out of it. */
enum hook {
	HOOK_IN = 1,
	HOOK_OUT = 2,
};

/* Both ends of a flow, in the direction of a packet. */
struct tuple {
	struct ip_addr src;
	struct ip_addr dst;
	__be16 src_port;
	__be16 dst_port;
	__u8 protocol;
	__u8 hook; /* enum hook */
	__u8 pad[2];
};

enum flow_flag {
	FLOW_TO_BACKEND = 1 << 0, /* from the client, chosen by us */
	FLOW_CLOSING = 1 << 1,	  /* FIN or RST was seen */
	FLOW_REFUSED = 1 << 2,	  /* to a port that answers with a refusal */
	FLOW_SEEN = 1 << 3,	  /* a packet came after it was made */
	FLOW_FROM_POD = 1 << 4,	  /* of a pod on this node: keeps its address */
	FLOW_REPLY = 1 << 5,	  /* to the client of a flow to a backend */
	FLOW_BYPASS = 1 << 6,	  /* to a backend past the Services */
	FLOW_HALF_OPEN = 1 << 7,  /* makes room, see tc/half_open.h */
	FLOW_BROKEN = 1 << 8,	  /* its backend has left the Service */
	FLOW_COUNTED = 1 << 9,	  /* in flight, in the original direction */
	FLOW_UNSENT = 1 << 10,	  /* what went there ended on this node */
};

/*
 * What a packet with a tuple becomes, in the conntrack map: one direction of a flow,
 * the original or the reply. Both have the frontend and the backend, so that either
 * can be made again from the other.
 */
struct flow {
	struct tuple to;
	__u64 last_seen_ns; /* coarse clock, up to a second late */
	__u32 frontend;	    /* ID */
	__u32 service;	    /* ID */
	__u32 backend_id;
	__u32 slot; /* the one that named the backend */
	enum flow_flag flags;
	__u32 next_seq;	 /* of TCP, after the SYN of this direction */
	__u32 ring_slot; /* of a half-open flow, in half_open_flows */
	__u32 pad;
};

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
	__u8 pad[2];
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
	DEVICE_POD = 1 << 0, /* the node's end of a pod's device */
	DEVICE_L3 = 1 << 1,  /* packets have no Ethernet header */
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

_Static_assert(sizeof(struct tuple) == 40, "key of conntrack");
_Static_assert(sizeof(struct flow) == 80, "value of conntrack");
