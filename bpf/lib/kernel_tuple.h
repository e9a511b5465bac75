/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* How the kernel takes the tuple of which it looks up a socket or a connection. */
#pragma once

#include "../abi/flow_types.h"
#include "addr.h"

/* A tuple as the kernel takes it. Returns its size for the family. */
static __always_inline __u32 kernel_tuple(const struct tuple *t,
					  struct bpf_sock_tuple *to)
{
	if (is_ip4(&t->src)) {
		to->ipv4.saddr = t->src.word[3];
		to->ipv4.daddr = t->dst.word[3];
		to->ipv4.sport = t->src_port;
		to->ipv4.dport = t->dst_port;
		return sizeof(to->ipv4);
	}
	__builtin_memcpy(to->ipv6.saddr, &t->src, sizeof(to->ipv6.saddr));
	__builtin_memcpy(to->ipv6.daddr, &t->dst, sizeof(to->ipv6.daddr));
	to->ipv6.sport = t->src_port;
	to->ipv6.dport = t->dst_port;
	return sizeof(to->ipv6);
}
