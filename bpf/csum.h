/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Checksums of RFC 1071, corrected for what changes (RFC 1624). */
#pragma once

#include <linux/tcp.h>
#include <linux/udp.h>

#include "packet.h"

#define TCP_CSUM_OFF offsetof(struct tcphdr, check)
#define UDP_CSUM_OFF offsetof(struct udphdr, check)
#define ICMP_CSUM_OFF 2 /* of ICMPv6, too */

static __always_inline __u32 sum_add(__u32 a, __u32 b)
{
	__u32 s = a + b;

	return s + (s < b);
}

/* Adds to a one's complement sum what replacing a word makes of it. */
static __always_inline __u32 sum_replace(__u32 sum, __be32 from, __be32 to)
{
	return sum_add(sum_add(sum, ~from), to);
}

static __always_inline __u32 sum_replace_addr(__u32 sum,
					      const struct ip_addr *from,
					      const struct ip_addr *to)
{
	for (int i = 0; i < 4; i++)
		sum = sum_replace(sum, from->word[i], to->word[i]);
	return sum;
}

/* The change of both addresses; the equal words of IPv4 change nothing. */
static __always_inline __u32 addr_diff(const struct tuple *from,
				       const struct tuple *to)
{
	__u32 sum = sum_replace_addr(0, &from->src, &to->src);

	return sum_replace_addr(sum, &from->dst, &to->dst);
}

static __always_inline __u32 ports_word(const struct tuple *t)
{
	struct ports p = { .src = t->src_port, .dst = t->dst_port };
	__u32 word;

	__builtin_memcpy(&word, &p, sizeof(word));
	return word;
}

/* A sum in 16 bits. */
static __always_inline __u16 sum_fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* The change of addresses and ports. */
static __always_inline __u32 tuple_diff(const struct tuple *from,
					const struct tuple *to)
{
	return sum_replace(addr_diff(from, to), ports_word(from),
			   ports_word(to));
}

/* A TCP or UDP checksum for another tuple; that of UDP may be none (RFC 768). */
static __always_inline __u16 l4_csum(__u16 csum, const struct tuple *from,
				     const struct tuple *to)
{
	bool udp = from->protocol == IPPROTO_UDP;

	if (udp && !csum)
		return 0;
	csum = ~sum_fold(sum_add((__u16)~csum, tuple_diff(from, to)));
	return udp && !csum ? 0xffff : csum;
}
