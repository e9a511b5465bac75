/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Load-time constants, each with the value of the field in pkg/datapath that is tagged
 * with its name: none has a value here. The verifier removes the branches that a value
 * makes dead.
 */
#pragma once

#include "frontend_types.h"
#include "types.h"

/*
 * Cookie of the node's own network namespace. Only there is 127.0.0.1 an
 * address of the node: in a pod it is the pod itself.
 */
volatile const __u64 node_netns_cookie = 0;

/* ID of the cgroup to which the socket programs are attached. */
volatile const __u64 cgroup_id = 0;

/* Are sockets of lost backends named to the agent, which then destroys them? */
volatile const bool name_sockets = false;

/* Is each socket with an entry destroyed, lost its backend or not? */
volatile const bool destroy_all = false;

/* Places of the frontends map less one: a power of two less one. */
volatile const __u32 frontends_mask = 0;

/* Random numbers of the hash of that map, see struct about. */
volatile const __u64 frontend_factors[FRONTEND_FACTORS] = { 0 };

/* How many bits of a hash do not say which bit of address_filter it is. */
volatile const __u32 address_filter_shift = 0;

/* Slots of the socket_nat map less one: a power of two less one. */
volatile const __u32 socket_nat_mask = 0;

/* Sets of the flow table. */
volatile const __u32 flow_sets = 0;

/* BPF_F_IPV6 where the kernel knows it (6.16), else 0. */
volatile const __u64 ip6_csum_flag = 0;

/* Are there pods whose sockets are left alone? */
volatile const bool pod_devices = false;

/* May programs read the kernel's memory? Not where it is locked down. */
volatile const bool kernel_readable = false;

/* Are bytes, packets, failures and connect times counted? */
volatile const bool count_traffic = false;

/*
 * Do tracepoints tell of connections that fail? Else sock_ops does, at several times
 * the cost of each connection.
 */
volatile const bool failures_traced = false;

/* Can the kernel be asked which connections it tracks? */
volatile const bool kernel_tracks = false;

/* How long a jiffy of the kernel is, at the most. */
volatile const __u32 tick_us = 0;

/* Do packets to other nodes leave at once, past the stack and its filters? */
volatile const bool redirect_flows = false;

/* Are there Services whose packets are carried to the homes of their backends? */
volatile const bool carrying = false;

/* The UDP port of carried packets and of echoes. */
volatile const __u16 carry_port = 0;

/* Do packets to backends outside have an outer header of UDP, too? Else they are IP in IP. */
volatile const bool outside_udp = false;

/* The keys of proofs, see carry/proof.h and tc/echo.h: the first one proves, both are accepted. */
volatile const __u64 carry_keys[2][2] = { 0 };

/* Equal on nodes that carry alike: a digest of the version and the key of hashes. */
volatile const __u64 carry_alike = 0;

/* Sets of the express map that each CPU has; 0: nothing is repeated. */
volatile const __u32 express_sets = 0;

/* Is it TC that repeats, and no driver? */
volatile const bool repeats_at_tc = false;

/* Idle seconds after which a flow of datagrams is a new one. */
volatile const __u32 udp_flow_timeout_s = 0;

/*
 * Source ports that flows to other nodes may have: so many from the first on. So many of
 * them are neither NodePorts nor chosen by the node's own sockets: the others are shared.
 */
volatile const __u16 snat_first = 0;
volatile const __u32 snat_ports = 0;
volatile const __u32 snat_unshared = 0;

/* Failures in a row that eject a backend; 0: never. */
volatile const __u32 eject_after = 0;

/* The largest share of the slots of a table that may be ejected, in percent. */
volatile const __u32 max_ejected_percent = 0;

/* Of the hashes of flows and clients: the same on all nodes with --hash-key-file, known to no client. */
volatile const __u64 hash_key[2] = { 0, 0 };
