/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The checksum of SCTP, CRC32c (RFC 9260, appendix A), for ports that change.
 *
 * A CRC is linear: what two messages of one length differ by decides what their
 * CRCs differ by. The ports are the first four bytes, so that the difference is
 * ports · x^(8 · length), modulo the polynomial: whatever else the packet holds
 * is not looked at. A product takes 32 steps, and the power is one of at most
 * four factors, one for each hexadecimal digit of the length.
 */
#pragma once

#include "packet.h"

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
STEP __u32 crc32c_change(__u32 diff, __u32 len)
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

/* Corrects the checksum at l4_off, of a packet that is no fragment. */
static __always_inline bool fix_sctp_csum(struct __sk_buff *skb,
					  const struct packet *pkt, __u32 diff)
{
	__u32 off = pkt->l4_off + SCTP_CSUM_OFF, csum;

	if (bpf_skb_load_bytes(skb, off, &csum, sizeof(csum)))
		return false;
	csum = sctp_csum(csum, diff, pkt->end - pkt->l4_off);
	return !bpf_skb_store_bytes(skb, off, &csum, sizeof(csum),
				    BPF_F_RECOMPUTE_CSUM);
}
