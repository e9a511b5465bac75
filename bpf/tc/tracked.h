/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Connections that the kernel tracks, and the datapath does not know: those that rules of
 * another service proxy have translated, before the programs were in force. Their packets
 * are left to the kernel, which goes on with them.
 */
#pragma once

#include "../abi/config.h"
#include "../lib/verdict.h"
#include "packet.h"

struct nf_conn {
	unsigned long
		status; /* never read: the loader wants a struct, not its name alone */
};

/* Which connection is looked up. Newer kernels know of more, and take this size. */
struct bpf_ct_opts {
	__s32 netns_id;
	__s32 error;
	__u8 l4proto;
	__u8 dir;
	__u8 reserved[2];
};

/* Only where the kernel tracks connections, mostly by a module. */
extern struct nf_conn *bpf_skb_ct_lookup(struct __sk_buff *skb,
					 struct bpf_sock_tuple *tuple,
					 __u32 tuple_size,
					 struct bpf_ct_opts *opts,
					 __u32 opts_size) __ksym __weak;
extern void bpf_ct_release(struct nf_conn *ct) __ksym __weak;

/* The tuple of a packet as the kernel takes it. Returns its size for the family. */
static __always_inline __u32 kernel_tuple(const struct packet *pkt,
					  struct bpf_sock_tuple *to)
{
	const struct tuple *t = &pkt->tuple;

	if (pkt->ip4) {
		to->ipv4.saddr = t->src.word[3];
		to->ipv4.daddr = t->dst.word[3];
		to->ipv4.sport = t->src_port;
		to->ipv4.dport = t->dst_port;
		return sizeof(to->ipv4);
	}
	__builtin_memcpy(to->ipv6.saddr, &t->src, sizeof(to->ipv6.saddr));
	__builtin_memcpy(to->ipv6.daddr, &t->dst, sizeof(to->ipv6.daddr));
	to->ipv6.sport = t->src_port;
	to->ipv6.dport = t->dst_port;
	return sizeof(to->ipv6);
}

/* Does the kernel track the connection of a packet? */
GLOBAL_FUNC int is_tracked(struct __sk_buff *skb, const struct packet *pkt)
{
	struct bpf_ct_opts opts = { .netns_id = BPF_F_CURRENT_NETNS };
	struct bpf_sock_tuple tuple = {};
	struct nf_conn *ct;
	__u32 size;

	if (!kernel_tracks || !pkt)
		return false;
	opts.l4proto = pkt->l4_proto;
	size = kernel_tuple(pkt, &tuple);
	ct = bpf_skb_ct_lookup(skb, &tuple, size, &opts, sizeof(opts));
	if (!ct)
		return false;
	bpf_ct_release(ct);
	count(flow_tracked);
	return true;
}
