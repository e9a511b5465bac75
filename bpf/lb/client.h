/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which client is it? What it says of a backend counts once. */
#pragma once

#include "../abi/config.h"
#include "../lib/addr.h"
#include "../lib/hash.h"
#include "../lib/kernel.h"
#include "../lib/verdict.h"

/*
 * A client on this node, as an address that no network has: it is its
 * namespace. The family is part of it, since the backends of both differ.
 */
static __always_inline struct ip_addr local_client(__u64 netns_cookie, bool ip4)
{
	return (struct ip_addr){
		.word = { 0xffffffff, ip4 ? 4 : 6, netns_cookie >> 32,
			  netns_cookie },
	};
}

/*
 * A client on this node, as one that measures response times: there are fewer bits for
 * it, and no need of a hash, since no client chooses the cookie of its namespace.
 */
#define NO_CLIENT (1 << 16)

static __always_inline __u32 measurer(__u64 netns_cookie)
{
	return (__u16)netns_cookie;
}

/* The same of the address of a client, NO_CLIENT where it is not on this node. */
static __always_inline __u32 measurer_at(const struct ip_addr *client)
{
	return client->word[0] == 0xffffffff ? measurer(client->word[3]) :
					       NO_CLIENT;
}

static __always_inline __u64 hash_addr(const struct ip_addr *a)
{
	struct siphash s = sip_begin(hash_key);

	sip_addr(&s, a);
	return sip_end(&s, sizeof(*a), 0);
}

/*
 * A keyed hash of a client's address, so that no client can pass for another. A
 * client elsewhere may use all of a /64 of IPv6: that is one client.
 */
GLOBAL_FUNC __u32 client_id(const struct ip_addr *client, bool on_node)
{
	struct ip_addr a;

	if (!client)
		return 0;
	a = *client;
	if (!on_node && !is_ip4(&a))
		a.word[2] = a.word[3] = 0;
	return hash_addr(&a);
}

/* The network of a client: a /24 of IPv4, a /64 of IPv6. */
static __always_inline __u32 network_of(const struct ip_addr *client)
{
	struct ip_addr a = *client;

	if (is_ip4(&a))
		a.word[3] &= bpf_htonl(0xffffff00);
	return client_id(&a, false);
}

/* A client that gets a backend. */
struct client {
	const struct ip_addr *addr;
	const struct ip_addr *dst; /* that it asked for */
	__u64 port;		   /* or the cookie of its socket */
	bool on_node;		   /* its address is one client */
	bool steady; /* gets the same slot each time, whatever the algorithm */
};
