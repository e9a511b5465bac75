/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the maps hold of sockets, and what the agent is told of them. The rules of abi/types.h apply. */
#pragma once

#include "types.h"

/* A socket NAT entry: the frontend that a socket asked for, the backend it got. */
struct socket_entry {
	struct addr_port frontend;
	struct addr_port backend;
	__u32 backend_id;
	__u32 slot;  /* the one that named the backend */
	__u64 netns; /* cookie of the network namespace of the socket */
};

/*
 * The padding of an entry's frontend. Of TCP: how often the SYN was sent again, which TCP
 * does after a second. Of UDP: the coarse clock >> ENTRY_TIME_SHIFT as the socket last sent or
 * received by the entry. The byte wraps after 73 minutes: an entry that old may seem in use.
 */
#define ENTRY_TIME_SHIFT 34 /* about 17 s */

/* The padding of an entry's backend. */
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
	ENTRY_COUNTED = 1 << 3, /* a part of its payload, see counted_payload */
	/* The agent had the socket connect again. If the peer is another, it failed. */
	ENTRY_RECONNECTED = 1 << 4,
	ENTRY_UDP_CLOSE = 1 << 5, /* its frontend had FRONTEND_UDP_CLOSE */
	/* Its backend had left before the agent looked for sockets that are to connect again. */
	ENTRY_LOST = 1 << 6,
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

/* An open socket that is to connect again, see sock/reconnect.h. */
struct socket_file {
	__u64 cookie;
	__s32 process; /* in the process namespace of the agent */
	__u32 fd;
	__u32 refused; /* the kernel has refused to connect it again */
	__u32 pad;
};

_Static_assert(sizeof(struct socket_slot) == 64, "one cache line");
_Static_assert(sizeof(struct stored_sockets) == 64, "one cache line");
_Static_assert(sizeof(struct named_socket) == 56, "no hidden padding");
_Static_assert(sizeof(struct socket_file) == 24, "no hidden padding");
