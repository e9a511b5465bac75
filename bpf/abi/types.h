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
	__u8 pad; /* 0, but for the backend of a socket_entry: entry_flag */
};

enum address_kind {
	ADDRESS_NODE = 1 << 0,	   /* NodePorts answer */
	ADDRESS_LOOPBACK = 1 << 1, /* the same, in the node's namespace */
	ADDRESS_SERVICE = 1 << 2,  /* a ClusterIP: other ports are refused */
	ADDRESS_FRONTEND = 1 << 3, /* another address of a frontend */
};

struct address {
	enum address_kind kind; /* a set of bits */
};

/* The hash of a filter, see lib/filter.h. */
enum filter_hash {
	FILTER_BITS = 20, /* of the hash; the maps have that many */
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

/* Why a connection was refused. Counted for each Service and for the node. */
enum drop_reason {
	DROP_NO_ENDPOINT,	/* no usable endpoint anywhere */
	DROP_NO_LOCAL_ENDPOINT, /* traffic policy Local, none on this node */
	DROP_NO_SERVICE_PORT,	/* ClusterIP without a Service on the port */
	DROP_NO_SERVICE,	/* address of a Service CIDR, of no Service */
	DROP_SOURCE_RANGE,	/* client outside loadBalancerSourceRanges */
	DROP_NO_BACKEND,	/* a slot names no backend: a bug */
	DROP_SNAT_EXHAUSTED,	/* every port to this backend is taken */
	DROP_FRAGMENT,		/* its transport header cannot be known */
	DROP_MARTIAN,		/* from or to loopback, from elsewhere */
	DROP_NO_ADDRESS,	/* no address of the node to leave with */
	DROP_NO_FLOW,		/* of a connection that is not known (yet) */
	DROP_TABLE_FULL,	/* no flow makes room for a new one */
	DROP_REASONS,
};

/* The name of a Service port, for people; and what was refused of it. */
struct service {
	char name[SERVICE_NAME_LEN]; /* "namespace/name:port/TCP" */
	__u64 drops[DROP_REASONS];   /* enum drop_reason */
};

/* A socket NAT entry: the frontend that a socket asked for, the backend it got. */
struct socket_entry {
	struct addr_port frontend;
	struct addr_port backend;
	__u32 backend_id;
	__u32 slot;  /* the one that named the backend */
	__u64 netns; /* cookie of the network namespace of the socket */
};

/* Where the backend of an entry has padding. */
enum entry_flag {
	/*
	 * The socket has since asked the backend by another frontend or by its own
	 * address: answers are not shown as those of this frontend.
	 */
	ENTRY_SILENT = 1 << 0,
	ENTRY_CONNECTED = 1 << 1, /* ends when the socket has no peer */
	/*
	 * Its backend had failed when it was chosen, or has failed it since: it is news
	 * if the backend takes the connection.
	 */
	ENTRY_AWAITED = 1 << 2,
};

/* An entry in the socket_nat map belongs to the socket with this cookie. */
struct socket_slot {
	/* 0: free. With the top bit the socket is gone, and the agent frees the slot. */
	__u64 owner;
	struct socket_entry entry;
};

/* The entries of a socket beyond the first, or when its slot was taken. */
struct stored_entries {
	__u32 next; /* where to look for room first; the bits below */
	struct socket_entry entry[STORED_ENTRIES];
};

/* Top bits of next. */
#define STORED_COUNTED 0x80000000 /* the socket stands in stored_sockets */
#define STORED_MANY 0x40000000	  /* the socket has many_entries, too */

/* The entries of a datagram socket beyond those in stored_entries. */
struct many_entries {
	__u32 next; /* where to look for room first */
	struct socket_entry entry[MANY_ENTRIES];
};

/* How many sockets of each slot have entries in their storage. */
struct stored_sockets {
	__u32 sockets[COUNTS_PER_CHUNK];
};

/* What the datapath counts, on each CPU, for the whole node. */
struct counters {
	__u64 connect;		     /* connect() translated */
	__u64 sendmsg;		     /* unconnected datagram translated */
	__u64 recvmsg;		     /* source of a datagram translated back */
	__u64 getpeername;	     /* peer shown as the frontend */
	__u64 socket_entry_stored;   /* kept in socket storage */
	__u64 socket_entry_replaced; /* of a socket with too many one made room */
	__u64 socket_entry_lost;     /* no memory to keep it */
	__u64 affinity;		/* chosen because the client had it before */
	__u64 socket_destroyed; /* its backend had left the Service */
	__u64 flow_made;	/* packets that began a flow */
	__u64 flow_packet;	/* packets that were rewritten */
	__u64 flow_error;	/* ICMP errors that were rewritten */
	__u64 flow_redirected;	/* packets sent on without the stack */
	__u64 flow_established; /* flows that both sides have confirmed */
	__u64 flow_expired; /* half-open directions that made room for others */
	__u64 flow_evicted; /* confirmed ones that did, silent for long */
	__u64 flow_restored;	 /* directions made again from the other one */
	__u64 flow_tracked;	 /* packets left to what the kernel tracks */
	__u64 flow_broken;	 /* TCP flows whose backend left the Service */
	__u64 flow_reset;	 /* packets answered with a TCP reset */
	__u64 reset_limited;	 /* resets that were too many */
	__u64 backend_failed;	 /* connections that a backend did not take */
	__u64 backend_ejected;	 /* was ejected */
	__u64 backend_recovered; /* was one no more */
	__u64 backend_retry;	 /* connections that ejected ones were given */
	__u64 choice_avoided; /* choices of an ejected backend that were changed */
	__u64 choice_fallback;	 /* choices from a fallback of a view */
	__u64 fragment_queued;	 /* came before the first one of its datagram */
	__u64 fragment_released; /* first ones that others had waited for */
	__u64 drops[DROP_REASONS]; /* enum drop_reason */
};

/* Which agent made the maps. The agent writes it, people read it. */
struct about {
	char version[64]; /* of headgate, NUL-terminated */
	char node[256];	  /* name of the node, NUL-terminated */
	char cgroup[512]; /* where the programs are attached */
	__u8 object[32];  /* SHA-256 of the object and its constants */
	__u64 writes;	  /* by the agent to the maps, since they were made */
	__u64 flows_migrated; /* 1: no other maps know flows that these do not */
	__u64 removed_ns; /* a Service last lost a backend; monotonic clock */
};

/* A socket as INET_DIAG knows it; IPv4 addresses stand in the first word. */
struct named_socket {
	__u64 cookie;
	__be32 local[4];
	__be32 peer[4];
	__u32 device; /* that it is bound to, or 0 */
	__be16 local_port;
	__be16 peer_port;
	__u8 family;
	__u8 protocol;
	__u8 pad[6];
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
_Static_assert(sizeof(struct socket_slot) == 64, "one cache line");
_Static_assert(sizeof(struct stored_sockets) == 64, "one cache line");
_Static_assert(sizeof(struct named_socket) == 56, "no hidden padding");
