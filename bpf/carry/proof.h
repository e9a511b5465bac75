/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The proof of an outer header of UDP: a node of the cluster has put it before this packet. It is
 * SipHash-1-3 by a key of all nodes. It covers the addresses of both headers, the inner protocol, the
 * length of an inner header of IPv4, and four bytes at offset 20 (IPv4) or 40 (IPv6): ports, mostly.
 * It also covers what the outer header says of the ring. Fragments of IPv4 count the four bytes as 0.
 *
 * A sender that has seen the proof of a plain packet can send packets of that flow, to the same
 * node. All segments and pieces of a packet have the same proof: it covers no total length, ID or
 * checksum.
 */
#pragma once

#include <linux/ip.h>
#include <linux/ipv6.h>

#include "../abi/types.h"
#include "../lib/addr.h"
#include "../lib/hash.h"

#define PROOF_ROUND_SHIFT 4 /* above how many homes were asked before */
#define PROOF_FRAGMENT bpf_htons(0x3fff) /* offset and more fragments */
#define PROOF_OUTER_IP4 0x40
#define PROOF_INNER_IP4 0x80

/* The first four bits are 0: no IP packet begins with them (GUE, variant 1). */
#define PROOF_MASK bpf_cpu_to_be64(~0ULL >> 4)

/* The begin of an inner packet as far as the proof goes. */
struct proven4 {
	struct iphdr ip;
	__be32 behind;
};

struct proven6 {
	struct ipv6hdr ip;
	__be32 behind;
};

/* A packet behind an outer header. */
struct proven {
	const void *inner;
	const void *data_end;
	__u32 len;  /* of the inner packet, in bytes */
	bool ip4;   /* is that one of IPv4? */
	bool piece; /* it is to be a fragment */
	__u8 ring;  /* tried and round of struct outer */
};

/* Two words as they stand in memory. */
static __always_inline void sip_words(struct siphash *s, const __be32 *w)
{
	sip_word(s, (__u64)w[1] << 32 | w[0]);
}

/*
 * Hashes the addresses of an inner packet. *rest is the four bytes behind its header, its protocol
 * and, of IPv4, the length of its header. False if they are out of reach.
 */
static __always_inline bool sip_inner4(struct siphash *s,
				       const struct proven *v, __u64 *rest)
{
	const struct proven4 *h = v->inner;

	if ((void *)(&h->ip + 1) > v->data_end)
		return false;
	sip_words(s, &h->ip.saddr);
	*rest = (__u64)h->ip.ihl << 48 | (__u64)h->ip.protocol << 32;
	if (v->piece || h->ip.frag_off & PROOF_FRAGMENT || v->len < sizeof(*h))
		return true;
	if ((void *)(h + 1) > v->data_end)
		return false;
	*rest |= h->behind;
	return true;
}

static __always_inline bool sip_inner6(struct siphash *s,
				       const struct proven *v, __u64 *rest)
{
	const struct proven6 *h = v->inner;
	const __be32 *w = (void *)&h->ip.saddr;

	if ((void *)(&h->ip + 1) > v->data_end)
		return false;
	sip_words(s, w);
	sip_words(s, w + 2);
	sip_words(s, w + 4);
	sip_words(s, w + 6);
	*rest = (__u64)h->ip.nexthdr << 32;
	if (v->len < sizeof(*h))
		return true;
	if ((void *)(h + 1) > v->data_end)
		return false;
	*rest |= h->behind;
	return true;
}

/* The proof of a packet by a key, as on the wire; false if its begin is out of reach. */
static __always_inline bool proof_of(const volatile __u64 *key,
				     const struct ip_addr *from,
				     const struct ip_addr *to,
				     const struct proven *v, __u64 *proof)
{
	struct siphash s = sip_begin(key);
	__u64 length = 7 + (v->ip4 ? 8 : 32), rest,
	      last = v->ring | (v->ip4 ? PROOF_INNER_IP4 : 0);

	if (is_ip4(from)) {
		sip_word(&s, (__u64)to->word[3] << 32 | from->word[3]);
		length += 8;
		last |= PROOF_OUTER_IP4;
	} else {
		sip_words(&s, from->word);
		sip_words(&s, from->word + 2);
		sip_words(&s, to->word);
		sip_words(&s, to->word + 2);
		length += 32;
	}
	if (!(v->ip4 ? sip_inner4(&s, v, &rest) : sip_inner6(&s, v, &rest)))
		return false;
	*proof = sip_end(&s, length, last << 40 | rest) & PROOF_MASK;
	return true;
}
