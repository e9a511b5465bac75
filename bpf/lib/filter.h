/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What is known at all? Most packets and connections have nothing to do with
 * Services, and each look-up that says so is a call of the kernel. These bits are
 * read where they lie: one that is not set says that a look-up would find nothing,
 * one that is set says nothing. They are set before there is something to find, and
 * never cleared: addresses are few beside the bits.
 */
#pragma once

#include "../abi/maps.h"

#define CHUNK_BITS (8 * sizeof(struct known_bits))

/* The agent computes the same for known_addresses. */
static __always_inline __u32 known_hash(const struct ip_addr *a)
{
	return a->word[3] * KNOWN_FACTOR_3 + a->word[2] * KNOWN_FACTOR_2 +
	       a->word[1] * KNOWN_FACTOR_1 + a->word[0] * KNOWN_FACTOR_0;
}

/*
 * An end of a flow: an address with a quarter of its ports. Those that devices
 * give flows to other nodes are one quarter, those of the node's own sockets
 * others, so that what these receive is told apart.
 */
static __always_inline __u32 end_hash(const struct ip_addr *a, __be16 port)
{
	return known_hash(a) + (bpf_ntohs(port) >> 14) * KNOWN_FACTOR_3;
}

/* The word that has the bit of a hash, or NULL. */
static __always_inline __u64 *known_word(void *map, __u32 hash)
{
	__u32 bit = hash >> (32 - KNOWN_BITS), chunk_index = bit / CHUNK_BITS;
	struct known_bits *chunk = bpf_map_lookup_elem(map, &chunk_index);

	return chunk ? &chunk->word[bit / 64 % KNOWN_WORDS] : NULL;
}

static __always_inline __u64 known_mask(__u32 hash)
{
	return 1ULL << (hash >> (32 - KNOWN_BITS)) % 64;
}

static __always_inline bool is_known(void *map, __u32 hash)
{
	__u64 *word = known_word(map, hash);

	return !word || *word & known_mask(hash);
}

/* May an address be one of a frontend, or mean something else? */
static __always_inline bool is_known_address(const struct ip_addr *a)
{
	return is_known(&known_addresses, known_hash(a));
}

/* May there be a flow with an end? Of one that leaves it is either. */
static __always_inline bool is_known_end(const struct ip_addr *a, __be16 port)
{
	return is_known(&known_ends, end_hash(a, port));
}

/* Notes an end of which there will be a flow. Mostly there was one before. */
static __always_inline void know_end(const struct ip_addr *a, __be16 port)
{
	__u32 hash = end_hash(a, port);
	__u64 *word = known_word(&known_ends, hash);

	if (word && !(*word & known_mask(hash)))
		__sync_fetch_and_or(word, known_mask(hash));
}
