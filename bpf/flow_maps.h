/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The maps of packets and their flows. What maps.h says of sizes holds here, too. */
#pragma once

#include "flow_types.h"

/* Flows of packets; the least recently used make room. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct tuple);
	__type(value, struct flow);
} conntrack SEC(".maps");

/* Which ends flows may have, see known.h. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, KNOWN_CHUNKS);
	__type(key, __u32);
	__type(value, struct known_bits);
} known_ends SEC(".maps");

/*
 * Keys of the flows that make room for new ones of their kind, first come, first
 * served: a ring.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tuple);
} brief_flows SEC(".maps");

/* The next place in that ring, modulo its size. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} next_brief_flow SEC(".maps");

/* Ports of datagrams that come in fragments. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct fragment_key);
	__type(value, struct datagram);
} fragments SEC(".maps");
