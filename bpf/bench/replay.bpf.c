/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * For `make bench`: gives the programs of devices and of drivers a packet of another
 * flow at each run. What they made of the one before is written over, so that a test
 * run may repeat.
 */
#include <stdbool.h>
#include <stddef.h>

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "../carry/proof.h"

#define AF_INET 2
#define PORTS 32768 /* of a client */
#define FIRST_PORT 32768

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} target SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} driver_target SEC(".maps");

__u32 next;	  /* packet */
__u32 flow_mask;  /* flows, a power of two, less one */
__u32 client;	  /* address of the first, in host order */
__u32 peer;	  /* the same of who clients speak to */
__u32 peer_mask;  /* of these, a power of two, less one */
__be16 peer_port; /* and the port */
__u16 from_peer;  /* packets go the other way */

/* What is of another flow, and what a router changes, from the TTL on. */
struct ends {
	__u8 ttl;
	__u8 protocol;
	__be16 check;
	__be32 src;
	__be32 dst;
	__be16 src_port;
	__be16 dst_port;
};

/* Makes a packet at data one of the next flow; false if it is too short. */
static __always_inline bool next_flow(void *data, void *data_end)
{
	/* An odd factor, so that flows come in no order, but each in turn. */
	__u32 flow = next++ * 2654435761u & flow_mask;
	__be32 addr = bpf_htonl(client + flow / PORTS),
	       other = bpf_htonl(peer + (flow & peer_mask));
	__be16 port = bpf_htons(FIRST_PORT + flow % PORTS);
	struct ends *e = data + offsetof(struct iphdr, ttl);

	if ((void *)(e + 1) > data_end)
		return false;
	e->ttl = 64;
	e->src = from_peer ? other : addr;
	e->dst = from_peer ? addr : other;
	e->src_port = from_peer ? peer_port : port;
	e->dst_port = from_peer ? port : peer_port;
	return true;
}

/*
 * At TC, of what is carried: the program puts so many bytes before a packet, which are taken off
 * again, or takes an outer header off, so that a frame begins with these headers again. Frames
 * are longer than their packets: there is room for many runs.
 */
__u32 outer_bytes;
__u32 covered;
__u32 far; /* address of a peer, in host order */
__u64 proof_key[2];
struct {
	struct ethhdr eth;
	struct iphdr outer;
	struct udphdr udp;
	__u64 proof;
	struct iphdr inner;
	struct tcphdr tcp;
} __attribute__((packed)) headers;

/* Writes the proof before a packet of a flow, as a node does that carries it. */
static __always_inline bool prove(void *inner, void *data_end)
{
	struct ip_addr from = from_ip4(headers.outer.saddr),
		       to = from_ip4(headers.outer.daddr);
	struct proven v = {
		.inner = inner,
		.data_end = data_end,
		.len = sizeof(headers.inner) + sizeof(headers.tcp),
		.ip4 = true,
	};

	return proof_of(proof_key, &from, &to, &v,
			inner - sizeof(headers.proof));
}

SEC("tc")
int replay(struct __sk_buff *skb)
{
	void *l3;

	if (outer_bytes &&
	    bpf_skb_adjust_room(skb, -(__s32)outer_bytes, BPF_ADJ_ROOM_MAC, 0))
		return TC_ACT_SHOT;
	if (covered &&
	    bpf_skb_store_bytes(skb, 0, &headers, sizeof(headers), 0))
		return TC_ACT_SHOT;
	l3 = (void *)(long)skb->data + ETH_HLEN;
	if (covered)
		l3 = (void *)(long)skb->data + offsetof(typeof(headers), inner);
	if (next_flow(l3, (void *)(long)skb->data_end) &&
	    (!covered || prove(l3, (void *)(long)skb->data_end)))
		bpf_tail_call(skb, &target, 0);
	return TC_ACT_SHOT;
}

__u32 frame_bytes; /* of the packet; 0: nothing is put before it */

/*
 * Takes off what was put before the packet in the run before: test runs go on with the frame
 * as it is. The program that does nothing is called so, too.
 */
static __always_inline bool uncover(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	__u32 len = data_end - data;
	struct ethhdr *eth;

	asm volatile("" : "+r"(len)); /* or pointers are added to numbers */
	if (bpf_xdp_adjust_head(ctx, len - frame_bytes))
		return false;
	eth = (void *)(long)ctx->data;
	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return false;
	eth->h_proto = bpf_htons(ETH_P_IP);
	return true;
}

SEC("xdp.frags")
int driver_replay(struct xdp_md *ctx)
{
	if (frame_bytes && !uncover(ctx))
		return XDP_ABORTED;
	if (next_flow((void *)(long)ctx->data + ETH_HLEN,
		      (void *)(long)ctx->data_end))
		bpf_tail_call(ctx, &driver_target, 0);
	return XDP_ABORTED;
}

/* Stand for programs that cost nothing. */
SEC("tc")
int nothing(struct __sk_buff *skb)
{
	return TC_ACT_UNSPEC;
}

/*
 * Stand for programs that carry, and do nothing of it but what the kernel does: making room, and
 * finding the next hop to a peer.
 */
static __always_inline int room(struct __sk_buff *skb)
{
	if (bpf_skb_adjust_room(skb, outer_bytes, BPF_ADJ_ROOM_MAC, 0))
		return TC_ACT_SHOT;
	return TC_ACT_UNSPEC;
}

SEC("tc")
int make_room(struct __sk_buff *skb)
{
	return room(skb);
}

SEC("tc")
int find_hop(struct __sk_buff *skb)
{
	struct bpf_fib_lookup hop = {
		.family = AF_INET,
		.ifindex = skb->ifindex,
		.ipv4_src = bpf_htonl(client),
		.ipv4_dst = bpf_htonl(far),
	};

	if (bpf_fib_lookup(skb, &hop, sizeof(hop), 0))
		return TC_ACT_SHOT;
	return room(skb);
}

SEC("xdp.frags")
int driver_nothing(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
