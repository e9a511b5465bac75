/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which frontend does a client mean? */
#pragma once

#include "addr.h"
#include "verdict.h"

/* The frontend at just this address, or NULL. */
static __always_inline struct frontend *frontend_at(const struct addr_port *at)
{
	__u32 *id = bpf_map_lookup_elem(&frontend_ids, at);

	return id ? bpf_map_lookup_elem(&frontends, id) : NULL;
}

/*
 * Finds the frontend at an address. Most of what a node connects to is no
 * Service: two look-ups say so. in_node says whether the client lives in the
 * node's own network namespace.
 */
static __always_inline enum verdict find_frontend(const struct addr_port *to,
						  bool in_node,
						  struct frontend **frontend)
{
	struct addr_port node_port = *to;
	struct address *address;
	__u32 kind;

	*frontend = frontend_at(to);
	if (*frontend)
		return VERDICT_CONTINUE;
	address = bpf_map_lookup_elem(&addresses, &to->addr);
	if (!address)
		return VERDICT_PASS;
	kind = address->kind;
	if (kind & ADDRESS_NODE || (kind & ADDRESS_LOOPBACK && in_node)) {
		node_port.addr = unspecified(&to->addr);
		*frontend = frontend_at(&node_port);
		if (*frontend)
			return VERDICT_CONTINUE;
	}
	if (kind & ADDRESS_SERVICE)
		return refuse(DROP_NO_SERVICE_PORT, 0);
	return VERDICT_PASS;
}
