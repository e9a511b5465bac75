/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which frontend does a client mean? */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../lib/addr.h"
#include "../lib/filter.h"
#include "../lib/verdict.h"

/* Is the client of a hook in the node's own namespace? NULL is a client elsewhere. */
static __always_inline bool lives_in_node(void *ctx)
{
	return ctx && bpf_get_netns_cookie(ctx) == node_netns_cookie;
}

/*
 * The upper half of a sum of products with random factors, a universal hash (Dietzfelbinger,
 * 1996). It is mixed once more: rows of addresses would be rows of places, which grow
 * together. The agent computes the same.
 */
static __always_inline __u32 frontend_hash(const struct addr_port *at)
{
	__u64 sum =
		frontend_factors[4] * ((__u32)at->port << 16 | at->protocol);

	for (int i = 0; i < 4; i++)
		sum += frontend_factors[i] * at->addr.word[i];
	return (sum ^ sum >> 32) * FILTER_FACTOR_3 >> 32;
}

static __always_inline struct frontend *frontend_in(__u32 place)
{
	return bpf_map_lookup_elem(&frontends, &place);
}

/* Has a frontend this address? Mostly it has, so all is compared at once. */
static __always_inline bool is_at(const struct frontend *f,
				  const struct addr_port *at)
{
	const __u32 *has = f->at.addr.word, *word = at->addr.word;

	return !((has[0] ^ word[0]) | (has[1] ^ word[1]) | (has[2] ^ word[2]) |
		 (has[3] ^ word[3]) | (f->at.port ^ at->port) |
		 (f->at.protocol ^ at->protocol));
}

#define NO_PLACE 0xffffffff

/* The place of a frontend that is not where its hash says, or NO_PLACE. */
GLOBAL_FUNC __u32 search_on(const struct addr_port *at)
{
	struct frontend *f;
	__u32 hash, place;

	if (!at)
		return NO_PLACE;
	hash = frontend_hash(at);
	for (int i = 1; i < FRONTEND_REACH; i++) {
		place = (hash + i) & frontends_mask;
		f = frontend_in(place);
		if (!f || f->at.protocol == FRONTEND_NONE)
			return NO_PLACE;
		if (is_at(f, at))
			return place;
	}
	return NO_PLACE;
}

/* The frontend at just this address, or NULL. */
static __always_inline struct frontend *frontend_at(const struct addr_port *at)
{
	struct frontend *f = frontend_in(frontend_hash(at) & frontends_mask);

	if (!f || is_at(f, at))
		return f;
	if (f->at.protocol == FRONTEND_NONE)
		return NULL;
	return frontend_in(search_on(at));
}

/* Do new clients find a frontend? They find no former one. */
static __always_inline bool is_open(const struct frontend *f)
{
	return f && !(f->flags & FRONTEND_FORMER);
}

/* The frontend of a port that is reached by all addresses of the node, or NULL. */
static __noinline struct frontend *node_frontend(const struct addr_port *at)
{
	struct addr_port node_port = *at;

	node_port.addr = unspecified(&at->addr);
	return frontend_at(&node_port);
}

/*
 * The Service of an address that a client has asked for, 0 if its frontend is gone. The frontend may be
 * a former one. An address that is none of a frontend's own is one of the node: it was when it was asked for.
 */
static __always_inline __u32 service_at(const struct addr_port *at)
{
	struct frontend *f = frontend_at(at) ?: node_frontend(at);

	return f ? f->service : 0;
}

static __always_inline bool in_cidr(const struct ip_addr *a,
				    const struct service_cidr *c)
{
	return !((a->word[0] ^ c->addr.word[0]) & c->mask.word[0]) &&
	       !((a->word[1] ^ c->addr.word[1]) & c->mask.word[1]) &&
	       !((a->word[2] ^ c->addr.word[2]) & c->mask.word[2]) &&
	       !((a->word[3] ^ c->addr.word[3]) & c->mask.word[3]);
}

/* Is it an address that only Services have? */
static __always_inline bool in_service_cidr(const struct ip_addr *a)
{
	__u32 zero = 0;
	struct service_cidrs *list = bpf_map_lookup_elem(&service_cidrs, &zero);

	for (int i = 0; list && i < SERVICE_CIDRS; i++) {
		if (!list->cidr[i].mask.word[0])
			return false;
		if (in_cidr(a, &list->cidr[i]))
			return true;
	}
	return false;
}

/*
 * Finds the frontend at an address. Most of what a node connects to is no
 * Service, and that is known without a look-up. The context tells where the client lives, NULL is
 * elsewhere. Of an address that only Services have, what has no frontend is to be
 * refused: *why says why, and the caller counts it.
 */
static __always_inline enum verdict find_frontend(void *ctx,
						  const struct addr_port *to,
						  struct frontend **frontend,
						  enum drop_reason *why)
{
	struct address *address = NULL;
	struct addr_port node_port;
	__u32 kind;

	*frontend = NULL;
	*why = DROP_NO_SERVICE;
	if (address_filter_has(&to->addr)) {
		*frontend = frontend_at(to);
		if (is_open(*frontend))
			return VERDICT_CONTINUE;
		*frontend = NULL;
		address = bpf_map_lookup_elem(&addresses, &to->addr);
	}
	/* The map may have bits of another version. */
	if (!address || !(address->kind & (ADDRESS_NODE | ADDRESS_LOOPBACK |
					   ADDRESS_SERVICE | ADDRESS_OWN)))
		return in_service_cidr(&to->addr) ? VERDICT_REFUSE :
						    VERDICT_PASS;
	kind = address->kind;
	if (kind & ADDRESS_NODE ||
	    (kind & ADDRESS_LOOPBACK && lives_in_node(ctx))) {
		node_port = *to;
		node_port.addr = unspecified(&to->addr);
		*frontend = frontend_at(&node_port);
		if (is_open(*frontend))
			return VERDICT_CONTINUE;
		*frontend = NULL;
	}
	*why = DROP_NO_SERVICE_PORT;
	return kind & ADDRESS_SERVICE ? VERDICT_REFUSE : VERDICT_PASS;
}

/* May a client use the frontend? Most let everybody. */
static __always_inline bool is_allowed(const struct frontend *f,
				       const struct ip_addr *client)
{
	struct source_range key = {
		.prefixlen = 8 * (sizeof(key.service) + sizeof(key.addr)),
		.service = f->service,
		.addr = *client,
	};

	return !(f->flags & FRONTEND_SOURCE_RANGES) ||
	       bpf_map_lookup_elem(&source_ranges, &key);
}
