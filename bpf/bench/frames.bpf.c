/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * For `make bench`: UDP frames of so many flows, made in the kernel, and what
 * takes them in at the other end of the way, past the stack there.
 */
#include <stddef.h>

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define PORTS 32768 /* of a client */
#define FIRST_PORT 32768
#define PAYLOAD 22 /* makes frames of 64 bytes */

struct frame {
	struct ethhdr eth;
	struct iphdr ip;
	struct udphdr udp;
	__u8 payload[PAYLOAD];
} __attribute__((packed));

__u32 next;	   /* frame */
__u32 flow_mask;   /* flows, a power of two, less one */
__u32 client;	   /* address of the first, in host order */
__u32 server;	   /* the same of who they speak to */
__u32 server_mask; /* servers, a power of two, less one */
__u32 server_port; /* in host order */
__u8 from[ETH_ALEN];
__u8 to[ETH_ALEN];
__u32 verdict; /* XDP_TX, or XDP_DROP: how fast frames are made */

/* Sums 16-bit words that are in host order. */
static __always_inline __be16 finish(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum += sum >> 16;
	return bpf_htons(~sum);
}

static __always_inline __u32 halves(__u32 addr)
{
	return (addr >> 16) + (addr & 0xffff);
}

/*
 * Writes the whole frame: memory that was a frame before comes again with what
 * the way has made of it.
 */
SEC("xdp")
int make_frame(struct xdp_md *ctx)
{
	/* An odd factor, so that flows come in no order, but each in turn. */
	__u32 flow = next++ * 2654435761u & flow_mask;
	__u32 src = client + flow / PORTS, dst = server + (flow & server_mask);
	__u16 port = FIRST_PORT + flow % PORTS,
	      len = sizeof(struct udphdr) + PAYLOAD;
	struct frame *f = (void *)(long)ctx->data;

	if ((void *)(f + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	__builtin_memcpy(f->eth.h_dest, to, ETH_ALEN);
	__builtin_memcpy(f->eth.h_source, from, ETH_ALEN);
	f->eth.h_proto = bpf_htons(ETH_P_IP);
	f->ip = (struct iphdr){
		.version = 4,
		.ihl = 5,
		.tot_len = bpf_htons(sizeof(struct iphdr) + len),
		.ttl = 64,
		.protocol = IPPROTO_UDP,
		.saddr = bpf_htonl(src),
		.daddr = bpf_htonl(dst),
	};
	f->ip.check = finish(0x4500 + sizeof(struct iphdr) + len + (64 << 8) +
			     IPPROTO_UDP + halves(src) + halves(dst));
	f->udp.source = bpf_htons(port);
	f->udp.dest = bpf_htons(server_port);
	f->udp.len = bpf_htons(len);
	f->udp.check = finish(halves(src) + halves(dst) + IPPROTO_UDP + len +
			      port + server_port + len);
	__builtin_memset(f->payload, 0, PAYLOAD);
	return verdict;
}

static __always_inline struct frame *udp_frame(struct __sk_buff *skb)
{
	struct frame *f = (void *)(long)skb->data;

	if ((void *)(f + 1) > (void *)(long)skb->data_end ||
	    f->eth.h_proto != bpf_htons(ETH_P_IP) ||
	    f->ip.protocol != IPPROTO_UDP)
		return NULL;
	return f;
}

/* Where frames end. All else is for the stack. */
SEC("tc")
int sink(struct __sk_buff *skb)
{
	return udp_frame(skb) ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

/* Sends frames back to where they came from. Sums stay the same. */
SEC("tc")
int echo(struct __sk_buff *skb)
{
	struct frame *f = udp_frame(skb);
	__u8 mac[ETH_ALEN];
	__be32 addr;
	__be16 port;

	if (!f)
		return TC_ACT_UNSPEC;
	__builtin_memcpy(mac, f->eth.h_dest, ETH_ALEN);
	__builtin_memcpy(f->eth.h_dest, f->eth.h_source, ETH_ALEN);
	__builtin_memcpy(f->eth.h_source, mac, ETH_ALEN);
	addr = f->ip.saddr;
	f->ip.saddr = f->ip.daddr;
	f->ip.daddr = addr;
	port = f->udp.source;
	f->udp.source = f->udp.dest;
	f->udp.dest = port;
	return bpf_redirect(skb->ifindex, 0);
}

/*
 * At the other ends of devices whose drivers send frames: without a program there none
 * would arrive.
 */
SEC("xdp.frags")
int let_in(struct xdp_md *ctx)
{
	return XDP_PASS;
}

/* Where frames end that no kernel has made a packet of. */
SEC("xdp.frags")
int driver_sink(struct xdp_md *ctx)
{
	return XDP_DROP;
}

char _license[] SEC("license") = "Dual BSD/GPL";
