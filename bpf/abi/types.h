/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the maps hold. The Go side gets these types from the object's BTF.
 * Everything named __be* is in network byte order, everything else in host
 * order. No struct has implicit padding: keys are compared byte by byte.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/types.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "traffic_types.h"

#define SERVICE_NAME_LEN 200
#define STORED_ENTRIES 4
#define MANY_ENTRIES 128
#define COUNTS_PER_CHUNK 16
#define FILTER_WORDS 8
#define FILTER_CHUNKS 2048
#define SERVICE_CIDRS 8

/* An IPv4 address is ::ffff:a.b.c.d. */
struct ip_addr {
	__be32 word[4];
};

/* What a client connects to, or where the traffic goes. */
struct addr_port {
	struct ip_addr addr;
	__be16 port;
	__u8 protocol; /* IPPROTO_TCP, … */
	__u8 pad;      /* 0, but in a socket_entry */
};

enum address_kind {
	ADDRESS_NODE = 1 << 0,	   /* of the node: NodePorts answer */
	ADDRESS_LOOPBACK = 1 << 1, /* the same, in the node's namespace */
	ADDRESS_SERVICE = 1 << 2,  /* a ClusterIP: other ports are refused */
	ADDRESS_FRONTEND = 1 << 3, /* another address of a frontend */
	ADDRESS_OWN = 1 << 4, /* of the node, but NodePorts do not answer */
};

struct address {
	enum address_kind kind; /* a set of bits */
};

/* The hash of a filter, see lib/filter.h. */
enum filter_hash {
	FILTER_BITS = 20, /* of the hash; address_filter may have more */
	FILTER_FACTOR_0 = 0x27d4eb2f,
	FILTER_FACTOR_1 = 0xc2b2ae35,
	FILTER_FACTOR_2 = 0x85ebca6b,
	FILTER_FACTOR_3 = 0x9e3779b1,
};

/* A cache line of the bits of a filter, see lib/filter.h. */
struct filter_chunk {
	__u64 word[FILTER_WORDS];
};

/* Addresses that belong to Services, whether or not one has them now. */
struct service_cidr {
	struct ip_addr addr;
	struct ip_addr mask; /* all zero: none */
};

/* The list ends at the first that is none. */
struct service_cidrs {
	struct service_cidr cidr[SERVICE_CIDRS];
};

/*
 * Session affinity is for a client and a Service port, whichever of its
 * addresses the client uses. A client on this node is identified by the cookie
 * of its network namespace, since it has no address yet when it connects.
 */
struct affinity_key {
	struct ip_addr client;
	__u32 service;
};

struct affinity {
	/*
	 * The backend ID, and in the lower half when it was used last, by the coarse
	 * clock >> AFFINITY_TIME_SHIFT: one word, so that CPUs do not mix them.
	 */
	__u64 had;
	__u32 slot; /* the one that named the backend */
	__u32 pad;
};

#define AFFINITY_TIME_SHIFT 26 /* about 67 ms */

/*
 * Why a connection was refused. Counted for each Service and for the node. The
 * comments are the meanings in docs/metrics.md: a test writes them there.
 */
enum drop_reason {
	/* the Service has no usable endpoint anywhere */
	DROP_NO_ENDPOINT,
	/* the traffic policy is Local, and this node has no usable endpoint */
	DROP_NO_LOCAL_ENDPOINT,
	/* the address belongs to a Service, which does not have the port, or gets no echo requests */
	DROP_NO_SERVICE_PORT,
	/* the address is within a service CIDR and belongs to no Service */
	DROP_NO_SERVICE,
	/* the client is outside of loadBalancerSourceRanges */
	DROP_SOURCE_RANGE,
	/*
	 * a table names a backend that does not exist: a bug in Headgate,
	 * please report it
	 */
	DROP_NO_BACKEND,
	/*
	 * every source port of this node towards the backend that was tried is
	 * taken
	 */
	DROP_SNAT_EXHAUSTED,
	/*
	 * the ports of a fragment cannot be known: the first fragment did not
	 * come, or too many wait
	 */
	DROP_FRAGMENT,
	/*
	 * a packet from elsewhere has a loopback address, or a UDP datagram to a
	 * Service comes from a frontend
	 */
	DROP_MARTIAN,
	/* the device towards the backend has no address of the family to send from */
	DROP_NO_ADDRESS,
	/*
	 * a packet within a connection that is not known, or not known yet
	 * after a replacement of the maps
	 */
	DROP_NO_FLOW,
	/*
	 * all flows that could make room for a new one are confirmed and live:
	 * --flows is too small
	 */
	DROP_TABLE_FULL,
	/*
	 * what another node has carried here is for no carried Service, has a
	 * client's address of a single link, or cannot be sent on
	 */
	DROP_CARRIED,
	/* a packet is too long to be carried to the node of its backend */
	DROP_TOO_LONG,
	DROP_REASONS,
};

/* The name of a Service port, for people; and what became of its clients. */
struct service {
	char name[SERVICE_NAME_LEN]; /* "namespace/name:port/TCP" */
	__u64 drops[DROP_REASONS];   /* enum drop_reason */
	__u64 connections;	     /* that began since it was named */
	struct traffic traffic;
	__u64 connect_times[CONNECT_TIMES];
};

/*
 * What the datapath counts, on each CPU, for the whole node. The comments are the
 * meanings in docs/metrics.md: a test writes them there.
 */
struct counters {
	/* connect() calls that got a backend */
	__u64 connect;
	/* datagrams of unconnected sockets that got a backend */
	__u64 sendmsg;
	/* datagrams whose source was shown as the frontend */
	__u64 recvmsg;
	/* getpeername() calls that were answered with the frontend */
	__u64 getpeername;
	/*
	 * socket NAT entries that went into the storage of their socket: those
	 * beyond its first, or its first where another socket had the slot
	 */
	__u64 socket_entry_stored;
	/*
	 * entries that made room for others of the same socket, which had very
	 * many
	 */
	__u64 socket_entry_replaced;
	/*
	 * entries that no memory was left for: the socket sees the address of
	 * the backend in place of the frontend's
	 */
	__u64 socket_entry_lost;
	/* clients that got the backend that session affinity keeps for them */
	__u64 affinity;
	/* sockets that were closed because their backend left the Service */
	__u64 socket_destroyed;
	/*
	 * connected UDP sockets that the agent connected again, to another backend or
	 * to wait for one, also those that the kernel then refused
	 */
	__u64 socket_reconnected;
	/* packets that began a flow */
	__u64 flow_made;
	/* packets of flows */
	__u64 flow_packet;
	/* ICMP errors that were rewritten for a flow */
	__u64 flow_error;
	/* packets that left past the stack (--redirect) */
	__u64 flow_redirected;
	/*
	 * those of them that became what the packet before had become: with --xdp at the
	 * driver of a device
	 */
	__u64 flow_repeated;
	/* packets that may be of flows and that a driver has left to TC (--xdp) */
	__u64 flow_unrepeated;
	/* packets that the driver of a device has carried to other nodes (--xdp) */
	__u64 carried_at_driver;
	/* flows that both sides have confirmed */
	__u64 flow_established;
	/*
	 * half-open directions of flows that made room for younger ones: many
	 * of them point to a SYN flood
	 */
	__u64 flow_expired;
	/*
	 * confirmed directions of flows that made room, as they were silent for
	 * longer than their kind may be, or datagrams beyond their share, or as
	 * one side had closed or reset the connection and there was no room:
	 * many of them say that --flows is too small
	 */
	__u64 flow_evicted;
	/*
	 * directions of confirmed flows that were made again from the other
	 * direction: they had made room for others
	 */
	__u64 flow_restored;
	/*
	 * packets within connections through rules such as kube-proxy's, which
	 * the kernel tracks: left to it. Once it stands still, no client
	 * outside uses the rules any more
	 */
	__u64 flow_tracked;
	/* TCP flows whose backend left the Service */
	__u64 flow_broken;
	/* packets that were answered with a TCP reset */
	__u64 flow_reset;
	/* resets and ICMP errors that were not sent, since there were too many */
	__u64 reset_limited;
	/*
	 * packets within connections that nobody may have, and that no other node was asked
	 * about, since there were too many (DSR)
	 */
	__u64 strays_limited;
	/* questions of peers that this node refused (DSR) */
	__u64 echo_refused;
	/*
	 * packets in an outer header that this node has not put there, for a Service or
	 * as a question of this node, dropped where they were to leave: pods sent them (DSR)
	 */
	__u64 carry_forged;
	/* connections that a backend did not take */
	__u64 backend_failed;
	/* ejections, for one client or for all */
	__u64 backend_ejected;
	/*
	 * ejections that ended: the backend took a connection, or its probe
	 * succeeded
	 */
	__u64 backend_recovered;
	/* connections that ejected backends got as a retry */
	__u64 backend_retry;
	/*
	 * clients that got another backend than an ejected one, than one that
	 * starts slowly, or than one towards which source ports run short
	 */
	__u64 choice_avoided;
	/*
	 * clients that got a backend outside of those that the zone policy
	 * prefers
	 */
	__u64 choice_fallback;
	/*
	 * fragments that came before the first one of their datagram, and wait
	 * for it
	 */
	__u64 fragment_queued;
	/* first fragments that others had waited for */
	__u64 fragment_released;
	__u64 drops[DROP_REASONS]; /* enum drop_reason */
};

#define FRONTEND_FACTORS 5

/* Which agent made the maps. The agent writes it but for one field, people read it. */
struct about {
	char version[64]; /* of headgate, NUL-terminated */
	char node[256];	  /* name of the node, NUL-terminated */
	char cgroup[512]; /* where the programs are attached */
	__u8 object[32];  /* SHA-256 of the object and its constants */
	__u64 writes;	  /* by the agent to the maps, since they were made */
	__u64 flows_migrated; /* 1: no other maps know flows that these do not */
	/* Until when packets at drivers are told of, by who looks at them; 0: nobody does. */
	__u64 traced_until_ns; /* monotonic clock */
	/* Goes up after whatever is taken away: what was done before is not repeated. */
	__u32 epoch;
	__u32 hands_over; /* 1: flows, to the kernel, before the programs go */
	__u64 removed_ns; /* a Service last lost a backend; monotonic clock */
	__u64 echoes_until_ns; /* for questions of peers; monotonic clock */
	/* Until when packets that are refused are told of, as traced_until_ns. */
	__u64 drops_until_ns;
	/* Random numbers of the hash of the frontends map, drawn with that. */
	__u64 frontend_factors[FRONTEND_FACTORS];
};

/* The argument of note_probe. */
struct probe_result {
	struct addr_port backend;
	__u32 backend_id;
	__u64 now_ns;	   /* coarse clock: a syscall program has none on 6.1 */
	__u64 no_retry_ns; /* of a failure: no retry for so long */
	__u32 failed; /* 1: the probe failed so often that others are better */
	__u32 pad;
};

_Static_assert(sizeof(struct addr_port) == 20, "no hidden padding");
_Static_assert(sizeof(struct affinity_key) == 20, "key of affinities");
