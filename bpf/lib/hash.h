/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A keyed hash: SipHash-1-3 (Aumasson and Bernstein, 2012; one round a word and
 * three at the end). Without the key no client can tell which slot a flow gets, so
 * none can aim flows at one backend. All nodes share the key, so they agree.
 */
#pragma once

#include "../abi/types.h"

struct siphash {
	__u64 v0, v1, v2, v3;
};

static __always_inline __u64 rotate_left(__u64 x, int bits)
{
	return x << bits | x >> (64 - bits);
}

static __always_inline void sip_round(struct siphash *s)
{
	s->v0 += s->v1;
	s->v1 = rotate_left(s->v1, 13) ^ s->v0;
	s->v0 = rotate_left(s->v0, 32);
	s->v2 += s->v3;
	s->v3 = rotate_left(s->v3, 16) ^ s->v2;
	s->v0 += s->v3;
	s->v3 = rotate_left(s->v3, 21) ^ s->v0;
	s->v2 += s->v1;
	s->v1 = rotate_left(s->v1, 17) ^ s->v2;
	s->v2 = rotate_left(s->v2, 32);
}

static __always_inline struct siphash sip_begin(const volatile __u64 key[2])
{
	__u64 k0 = key[0], k1 = key[1];

	return (struct siphash){
		.v0 = k0 ^ 0x736f6d6570736575ULL,
		.v1 = k1 ^ 0x646f72616e646f6dULL,
		.v2 = k0 ^ 0x6c7967656e657261ULL,
		.v3 = k1 ^ 0x7465646279746573ULL,
	};
}

static __always_inline void sip_word(struct siphash *s, __u64 word)
{
	s->v3 ^= word;
	sip_round(s);
	s->v0 ^= word;
}

/* length is that of all, in bytes; rest is what is no whole word. */
static __always_inline __u64 sip_end(struct siphash *s, __u64 length,
				     __u64 rest)
{
	sip_word(s, length << 56 | rest);
	s->v2 ^= 0xff;
	sip_round(s);
	sip_round(s);
	sip_round(s);
	return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

static __always_inline void sip_addr(struct siphash *s, const struct ip_addr *a)
{
	sip_word(s, (__u64)a->word[0] << 32 | a->word[1]);
	sip_word(s, (__u64)a->word[2] << 32 | a->word[3]);
}
