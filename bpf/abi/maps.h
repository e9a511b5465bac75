/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The maps. Sizes are set by the agent before load; what stands here is the
 * least that loads.
 */
#pragma once

#include "flow_types.h"
#include "frontend_types.h"
#include "peer_types.h"
#include "socket_types.h"
#include "trace_types.h"
#include "types.h"

/*
 * Addresses that clients use, and what stands behind them: a hash table with open
 * addressing and linear probing, see lb/frontend.h. A NodePort is at 0.0.0.0 or ::. A
 * change of backends is a store, and no element that a program may be reading is ever
 * replaced.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct frontend);
} frontends SEC(".maps");

/* Where clients go if the backends of a frontend are all ejected, by its place. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fallbacks);
} fallbacks SEC(".maps");

/* Runs of backend IDs, which frontends point at. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct slot_chunk);
} slots SEC(".maps");

/* What slots of tables in use named before they were changed. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct slot_change);
} slot_changes SEC(".maps");

/* Nodes that packets are carried to, by ID. HOME_HERE is this node. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct peer);
} peers SEC(".maps");

/* IDs of peers, by address: from nobody else is anything carried here. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct ip_addr);
	__type(value, __u32);
} peer_addresses SEC(".maps");

/* The round of questions to each peer, by ID. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct echo_round);
} echo_rounds SEC(".maps");

/* What was carried to each peer, by ID. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct peer_counts);
} peer_counts SEC(".maps");

/* The next hop to each peer, by ID, as each CPU found it last. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct peer_ways);
} peer_ways SEC(".maps");

/*
 * How many packets within connections that nobody has were passed on of late. One for all
 * CPUs: what goes around comes back on any of them.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stray_budget);
} stray_budgets SEC(".maps");

/* Where traffic goes, and how it is there, by backend ID. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct backend);
} backends SEC(".maps");

/* Names of Service ports, and what is counted of each, by Service ID. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct service);
} services SEC(".maps");

/* Addresses that mean something whatever the port. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct ip_addr);
	__type(value, struct address);
} addresses SEC(".maps");

/* Which addresses may be in addresses or frontends, see lib/filter.h. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct filter_chunk);
} address_filter SEC(".maps");

/* Prefixes whose addresses are refused unless a Service has them. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct service_cidrs);
} service_cidrs SEC(".maps");

/* Which backend a client had last; the least recently used make room. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct affinity_key);
	__type(value, struct affinity);
} affinities SEC(".maps");

/*
 * The first socket NAT entry of each socket, at its cookie modulo the size. Cookies
 * count up, so that neighbours seldom collide; the entry of a socket that finds its
 * slot taken is in stored_entries.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct socket_slot);
} socket_nat SEC(".maps");

/* Socket NAT entries in the storage of their socket. It lives and dies with that, so it needs no size. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct stored_entries);
} stored_entries SEC(".maps");

/* Further socket NAT entries of the few sockets that ask many frontends, in their storage. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct many_entries);
} many_entries SEC(".maps");

/* What has been counted of the payload of sockets that live long. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct payload);
} counted_payload SEC(".maps");

/*
 * How many sockets have entries in their storage, by slot of the socket_nat map: nearly always
 * none, and then programs do not look. The agent writes a large number where it does
 * not know.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stored_sockets);
} stored_sockets SEC(".maps");

/* Clients that may use Services with source ranges. The value means nothing. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct source_range);
	__type(value, __u32);
} source_ranges SEC(".maps");

/* Devices with programs, by ifindex. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct device);
} devices SEC(".maps");

/*
 * Network namespaces whose sockets are left alone, by cookie: those of pods that
 * are balanced by their packets. The value means nothing.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, __u32);
} exempt_namespaces SEC(".maps");

/* Flows of packets, see flow/table.h. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow_set);
} flow_table SEC(".maps");

/* What the packets of flows were, by set, see flow/traffic.h. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow_traffic);
} flow_traffic SEC(".maps");

/* Random numbers that say in which sets of the table flows are. The agent writes them once. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow_factors);
} flow_factors SEC(".maps");

/* Which ends flows may have, see lib/filter.h. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, FILTER_CHUNKS);
	__type(key, __u32);
	__type(value, struct filter_chunk);
} flow_filter SEC(".maps");

/*
 * What the driver repeats of what TC did, see flow/express.h: the sets of the first CPU,
 * then those of the second, … None is changed on another CPU than it is read on.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct express_set);
} express SEC(".maps");

/* The packet that is about to leave past the stack, on each CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct passage);
} passage SEC(".maps");

/* What became of packets at drivers, and what TC carried, for headgate trace, by the CPU that had them. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct told_packets);
} driver_told SEC(".maps");

/* Packets that were refused, for headgate trace, by the CPU that had them. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct told_packets);
} drops_told SEC(".maps");

/* Ports of datagrams that come in fragments. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct fragment_key);
	__type(value, struct datagram);
} fragments SEC(".maps");

/* Fragments that came before the first one of their datagram. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct queued_key);
	__type(value, struct queued_frame);
} fragment_queue SEC(".maps");

/* Where a frame is put together: it is too long for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct queued_frame);
} frame_scratch SEC(".maps");

/* What is being cut. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cut_packet);
} cut_scratch SEC(".maps");

/* Where a new flow is put together: stacks are short. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct new_flow);
} flow_scratch SEC(".maps");

/* How many resets and ICMP errors were sent of late, on each CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct reset_budget);
} reset_budgets SEC(".maps");

/* Events and refusals of the whole node, on each CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} counters SEC(".maps");

/* Where the random numbers of each CPU have got to, 0 before the first. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} random_state SEC(".maps");

/* Which agent made the maps, and what programs are to know of it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct about);
} about SEC(".maps");
