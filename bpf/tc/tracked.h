/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Connections that the kernel knows, and the datapath does not. Packets of those that rules of
 * another service proxy have translated, before the programs were in force, are left to the
 * kernel, which goes on with them. No flow takes the packets of any.
 */
#pragma once

#include "../abi/config.h"
#include "../flow/table.h"
#include "../lib/kernel_tuple.h"
#include "../lib/verdict.h"
#include "packet.h"
#include "recover.h"

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

/* As which direction of a connection the kernel tracks a tuple. */
enum tracked {
	TRACKED_NOT,
	TRACKED_ORIGINAL, /* as its first packet went */
	TRACKED_REPLY,
};

/* As which direction does the kernel track a tuple? */
static __always_inline enum tracked tracks(struct __sk_buff *skb,
					   struct bpf_sock_tuple *tuple,
					   __u32 size, __u8 protocol)
{
	struct bpf_ct_opts opts = {
		.netns_id = BPF_F_CURRENT_NETNS,
		.l4proto = protocol,
	};
	struct nf_conn *ct;

	if (!kernel_tracks)
		return TRACKED_NOT;
	ct = bpf_skb_ct_lookup(skb, tuple, size, &opts, sizeof(opts));
	if (!ct)
		return TRACKED_NOT;
	bpf_ct_release(ct);
	return opts.dir ? TRACKED_REPLY : TRACKED_ORIGINAL;
}

/* Has a socket of the node the destination of a tuple, or TCP a connection to its source? */
static __always_inline bool has_socket(struct __sk_buff *skb,
				       struct bpf_sock_tuple *tuple, __u32 size,
				       __u8 protocol)
{
	struct bpf_sock *sk;
	bool has;

	if (protocol == IPPROTO_TCP)
		sk = bpf_skc_lookup_tcp(skb, tuple, size, BPF_F_CURRENT_NETNS,
					0);
	else
		sk = bpf_sk_lookup_udp(skb, tuple, size, BPF_F_CURRENT_NETNS,
				       0);
	if (!sk)
		return false;
	has = protocol != IPPROTO_TCP || sk->state != BPF_TCP_LISTEN;
	bpf_sk_release(sk);
	return has;
}

/*
 * Is the source of a tuple the peer of a UDP socket of the node, at its destination? Not inlined:
 * the verifier tells sockets of UDP from those of TCP, and compilers do not.
 */
static __noinline bool is_peer_of_socket(struct __sk_buff *skb,
					 struct bpf_sock_tuple *tuple,
					 __u32 size)
{
	struct bpf_sock *sk;
	bool has;

	sk = bpf_sk_lookup_udp(skb, tuple, size, BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return false;
	has = sk->state == BPF_TCP_ESTABLISHED;
	bpf_sk_release(sk);
	return has;
}

/*
 * Does a packet belong to a connection that the kernel tracks, or to a connected socket of the
 * node? Of UDP only the reply direction counts, unless flows are handed over: the kernel also tracks
 * datagrams that clients have sent in vain before there was a frontend.
 */
GLOBAL_FUNC int is_of_others(struct __sk_buff *skb, const struct packet *pkt)
{
	struct bpf_sock_tuple tuple = {};
	enum tracked by;
	__u32 size;
	bool udp;

	if (!pkt)
		return false;
	udp = pkt->l4_proto == IPPROTO_UDP;
	size = kernel_tuple(&pkt->tuple, &tuple);
	by = tracks(skb, &tuple, size, pkt->l4_proto);
	if (udp && (by != TRACKED_ORIGINAL || !hands_over()))
		return by == TRACKED_REPLY ||
		       is_peer_of_socket(skb, &tuple, size);
	if (by)
		count(flow_tracked);
	return by || (pkt->l4_proto == IPPROTO_TCP &&
		      has_socket(skb, &tuple, size, IPPROTO_TCP));
}

/*
 * Does the flow that a packet has begun take what comes for somebody else: for a socket of the
 * node, or for a connection that the kernel tracks? It knows of no packet of the flow itself yet,
 * as long as that is not on its way out with the address of its client.
 */
GLOBAL_FUNC int takes_from_others(struct __sk_buff *skb,
				  const struct packet *pkt)
{
	struct bpf_sock_tuple tuple = {};
	struct tuple reply;
	__u32 size;

	if (!pkt)
		return false;
	other_key(&reply, &pkt->to, pkt->tuple.hook);
	size = kernel_tuple(&reply, &tuple);
	return (reply.hook == HOOK_IN &&
		has_socket(skb, &tuple, size, reply.protocol)) ||
	       tracks(skb, &tuple, size, reply.protocol);
}
