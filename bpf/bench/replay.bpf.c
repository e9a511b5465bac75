/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * For `make bench`: gives the programs of devices a packet of another flow at
 * each run. What they made of the one before is written over, so that a test run
 * may repeat.
 */
#include <stddef.h>

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define PORTS 32768 /* of a client */
#define FIRST_PORT 32768

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} target SEC(".maps");

__u32 next;	  /* packet */
__u32 flow_mask;  /* flows, a power of two, less one */
__u32 client;	  /* address of the first, in host order */
__be32 peer;	  /* address of who clients speak to */
__be16 peer_port; /* and the port */
__u16 from_peer;  /* packets go the other way */

struct ends {
	__be32 src;
	__be32 dst;
	__be16 src_port;
	__be16 dst_port;
};

SEC("tc")
int replay(struct __sk_buff *skb)
{
	/* An odd factor, so that flows come in no order, but each in turn. */
	__u32 flow = next++ * 2654435761u & flow_mask;
	__be32 addr = bpf_htonl(client + flow / PORTS);
	__be16 port = bpf_htons(FIRST_PORT + flow % PORTS);
	struct ends *e = (void *)(long)skb->data + ETH_HLEN +
			 offsetof(struct iphdr, saddr);

	if ((void *)(e + 1) > (void *)(long)skb->data_end)
		return TC_ACT_SHOT;
	e->src = from_peer ? peer : addr;
	e->dst = from_peer ? addr : peer;
	e->src_port = from_peer ? peer_port : port;
	e->dst_port = from_peer ? port : peer_port;
	bpf_tail_call(skb, &target, 0);
	return TC_ACT_SHOT;
}

/* Stands for a program that costs nothing. */
SEC("tc")
int nothing(struct __sk_buff *skb)
{
	return TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "Dual BSD/GPL";
