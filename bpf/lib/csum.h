/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Checksums, corrected for what changes: those of the Internet protocols (RFC 1071,
 * RFC 1624), and CRC32c of SCTP (RFC 9260, appendix A), for other ports.
 *
 * A CRC is linear: what two messages of one length differ by decides what their
 * CRCs differ by. The ports are the first four bytes, so that the difference is
 * ports · x^(8 · length), modulo the polynomial: whatever else the packet holds
 * is not looked at. A product takes 32 steps, and the power is one of at most
 * four factors, one for each hexadecimal digit of the length.
 */
#pragma once

#include <linux/tcp.h>
#include <linux/udp.h>

#include "verdict.h"

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

#define CRC32C_POLYNOMIAL 0x82f63b78 /* bit 31 is x^0, as in all of this file */
#define SCTP_CSUM_OFF 8
#define SCTP_HEADER_LEN 12
#define SCTP_LEN_DIGITS 4

/* clang-format off */
/* x^(8 · digit · 16^place) modulo the polynomial; tests compute them anew. */
static const __u32 crc32c_power[SCTP_LEN_DIGITS][16] = {
	{ 0x80000000, 0x00800000, 0x00008000, 0x00000080,
	  0x82f63b78, 0xfbc3faf9, 0x8b277743, 0x52a0c93f,
	  0x6ea2d55c, 0x1c08b7d6, 0xf56e0ef4, 0x34019664,
	  0xa66805eb, 0x7a1f6b24, 0xe75d06aa, 0xc94ec098 },
	{ 0x80000000, 0x18b8ea18, 0x510ac59a, 0xb2dea967,
	  0xb82be955, 0x36c41f1c, 0x19b29a35, 0xc9e90b9e,
	  0xb8fdb1e7, 0xe55ef1f3, 0x1fe0b5c3, 0xe0553f1e,
	  0x18e4a304, 0x2b830011, 0x56993a31, 0x0246e2e6 },
	{ 0x80000000, 0x88e56f72, 0x74c360a4, 0x631bb273,
	  0xe4172b16, 0x71892b1b, 0x835305c9, 0x196b1eae,
	  0x0d65762a, 0xafc81338, 0xb5a50ab7, 0xf373c3ac,
	  0x5f60970f, 0xd46d3063, 0x3a5275ea, 0x02331c01 },
	{ 0x80000000, 0x35d73a62, 0x28461564, 0x43eefc9f,
	  0xbf455269, 0x5edcdeb9, 0x65059450, 0x4e6f41a4,
	  0xe2ea32dc, 0xf5b95b32, 0x695a4c87, 0xf204502c,
	  0x9a4f01b6, 0x941a0916, 0x4303cb97, 0x4c3d3d65 },
};
/* clang-format on */

/*
 * Bit i of a. The compiler must not know that it is one: it would make branches
 * or masks of products with it, and the verifier walks both ways of either.
 */
static __always_inline __u32 bit(__u32 a, int i)
{
	__u32 b = a >> i & 1;

	asm volatile("" : "+r"(b));
	return b;
}

/* The product modulo the polynomial. */
static __always_inline __u32 crc32c_product(__u32 a, __u32 b)
{
	__u32 product = 0;

	for (int i = 31; i >= 0; i--) {
		product ^= b * bit(a, i);
		b = b >> 1 ^ (CRC32C_POLYNOMIAL * bit(b, 0));
	}
	return product;
}

/* What the CRC of len bytes changes by if the first four change by diff. */
GLOBAL_FUNC __u32 crc32c_change(__u32 diff, __u32 len)
{
	for (int place = 0; place < SCTP_LEN_DIGITS; place++, len >>= 4) {
		if (len & 15)
			diff = crc32c_product(diff,
					      crc32c_power[place][len & 15]);
	}
	return diff;
}

/*
 * The checksum that a packet of len bytes gets with its ports changed by diff.
 * None stays none: either a device is still to compute it, from all of the
 * packet, or its sender does without (RFC 9653).
 */
static __always_inline __u32 sctp_csum(__u32 csum, __u32 diff, __u32 len)
{
	return csum && diff ? csum ^ crc32c_change(diff, len) : csum;
}
