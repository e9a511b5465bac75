/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Addresses: one type for both families. */
#pragma once

#include "../abi/types.h"

static __always_inline bool same_addr(const struct ip_addr *a,
				      const struct ip_addr *b)
{
	return a->word[3] == b->word[3] && a->word[2] == b->word[2] &&
	       a->word[1] == b->word[1] && a->word[0] == b->word[0];
}

static __always_inline bool same_addr_port(const struct addr_port *a,
					   const struct addr_port *b)
{
	return same_addr(&a->addr, &b->addr) && a->port == b->port &&
	       a->protocol == b->protocol;
}

static __always_inline bool is_ip4(const struct ip_addr *a)
{
	return !a->word[0] && !a->word[1] && a->word[2] == bpf_htonl(0xffff);
}

static __always_inline bool is_zero(const struct ip_addr *a)
{
	return !(a->word[0] | a->word[1] | a->word[2] | a->word[3]);
}

/* 127.0.0.0/8 or ::1. */
static __always_inline bool is_loopback(const struct ip_addr *a)
{
	if (is_ip4(a))
		return (bpf_ntohl(a->word[3]) >> 24) == 127;
	return !a->word[0] && !a->word[1] && !a->word[2] &&
	       a->word[3] == bpf_htonl(1);
}

/* 0.0.0.0 or ::. */
static __always_inline bool is_unspecified(const struct ip_addr *a)
{
	return !a->word[3] && (is_ip4(a) || is_zero(a));
}

static __always_inline struct ip_addr from_ip4(__be32 ip4)
{
	return (struct ip_addr){ .word = { 0, 0, bpf_htonl(0xffff), ip4 } };
}

/*
 * 0.0.0.0 or ::, of the family of a. NodePorts stand under it in the maps, so it is
 * never looked up for a client that asks for it.
 */
static __always_inline struct ip_addr unspecified(const struct ip_addr *a)
{
	return (struct ip_addr){ .word = { 0, 0, is_ip4(a) ? a->word[2] : 0,
					   0 } };
}

/* 127.0.0.1 or ::1, of the family of a. */
static __always_inline struct ip_addr loopback(const struct ip_addr *a)
{
	if (is_ip4(a))
		return from_ip4(bpf_htonl(0x7f000001));
	return (struct ip_addr){ .word = { 0, 0, 0, bpf_htonl(1) } };
}
