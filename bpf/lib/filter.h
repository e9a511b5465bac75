/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Filters with one hash (Bloom, 1970). Most packets and connections have nothing to do
 * with Services, and each look-up that says so is a call of the kernel. These bits are
 * read in place: one that is clear says that a look-up would find nothing, one that is
 * set says nothing. They are set before there is something to find, and never cleared:
 * there are many bits for each address. The first bits of a hash say which one it is.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"

#define CHUNK_BITS (8 * sizeof(struct filter_chunk))

/* The agent computes the same for address_filter. */
static __always_inline __u32 filter_hash(const struct ip_addr *a)
{
	return a->word[3] * FILTER_FACTOR_3 + a->word[2] * FILTER_FACTOR_2 +
	       a->word[1] * FILTER_FACTOR_1 + a->word[0] * FILTER_FACTOR_0;
}

/*
 * An end of a flow: an address with a quarter of its ports. Those that devices give flows
 * to other nodes first are in other quarters than those of the node's own sockets, so that
 * what these receive is told apart.
 */
static __always_inline __u32 end_hash(const struct ip_addr *a, __be16 port)
{
	return filter_hash(a) + (bpf_ntohs(port) >> 14) * FILTER_FACTOR_3;
}

/* The word that has a bit, or NULL. */
static __always_inline __u64 *filter_word(void *map, __u32 bit)
{
	__u32 chunk_index = bit / CHUNK_BITS;
	struct filter_chunk *chunk = bpf_map_lookup_elem(map, &chunk_index);

	return chunk ? &chunk->word[bit / 64 % FILTER_WORDS] : NULL;
}

static __always_inline __u64 filter_mask(__u32 bit)
{
	return 1ULL << bit % 64;
}

static __always_inline bool filter_has(void *map, __u32 bit)
{
	__u64 *word = filter_word(map, bit);

	return !word || *word & filter_mask(bit);
}

/* The bit of an end in flow_filter. */
static __always_inline __u32 end_bit(const struct ip_addr *a, __be16 port)
{
	return end_hash(a, port) >> (32 - FILTER_BITS);
}

/* May an address be one of a frontend, or mean something else? */
static __always_inline bool address_filter_has(const struct ip_addr *a)
{
	return filter_has(&address_filter,
			  filter_hash(a) >> address_filter_shift);
}

/*
 * May a frontend answer at an address and a quarter of the ports? The hash is another one than
 * that of the address alone.
 */
static __always_inline bool answer_filter_has(const struct ip_addr *a,
					      __be16 port)
{
	return filter_has(&address_filter,
			  (end_hash(a, port) + FILTER_FACTOR_3) >>
				  address_filter_shift);
}

/* May there be a flow with this end? */
static __always_inline bool flow_filter_has(const struct ip_addr *a,
					    __be16 port)
{
	return filter_has(&flow_filter, end_bit(a, port));
}

/* Adds an end of which there will be a flow. Mostly there was one before. */
static __always_inline void flow_filter_add(const struct ip_addr *a,
					    __be16 port)
{
	__u32 bit = end_bit(a, port);
	__u64 *word = filter_word(&flow_filter, bit);

	if (word && !(*word & filter_mask(bit)))
		__sync_fetch_and_or(word, filter_mask(bit));
}
