/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The entry points, and nothing else. */
#include <stdbool.h>
#include <stddef.h>

#include <linux/bpf.h>
#include <linux/types.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "destroy.h"
#include "forward.h"
#include "icmp.h"
#include "list.h"
#include "ours.h"
#include "redirect.h"
#include "reset.h"
#include "sock.h"
#include "vlan.h"
#include "watch.h"

SEC("cgroup/connect4")
int connect4(struct bpf_sock_addr *ctx)
{
	struct addr_port to = sock_addr4(ctx);
	enum verdict v = connect_backend(ctx, &to);

	if (v == VERDICT_CONTINUE)
		set_sock_addr4(ctx, &to);
	return sock_verdict(v);
}

SEC("cgroup/connect6")
int connect6(struct bpf_sock_addr *ctx)
{
	struct addr_port to = sock_addr6(ctx);
	enum verdict v = connect_backend(ctx, &to);

	if (v == VERDICT_CONTINUE)
		set_sock_addr6(ctx, &to);
	return sock_verdict(v);
}

SEC("cgroup/sendmsg4")
int sendmsg4(struct bpf_sock_addr *ctx)
{
	struct addr_port to = sock_addr4(ctx);
	enum verdict v = send_to_backend(ctx, &to);

	if (v == VERDICT_CONTINUE)
		set_sock_addr4(ctx, &to);
	return sock_verdict(v);
}

SEC("cgroup/sendmsg6")
int sendmsg6(struct bpf_sock_addr *ctx)
{
	struct addr_port to = sock_addr6(ctx);
	enum verdict v = send_to_backend(ctx, &to);

	if (v == VERDICT_CONTINUE)
		set_sock_addr6(ctx, &to);
	return sock_verdict(v);
}

SEC("cgroup/recvmsg4")
int recvmsg4(struct bpf_sock_addr *ctx)
{
	struct addr_port from = sock_addr4(ctx);

	if (show_frontend(ctx, &from) == VERDICT_CONTINUE) {
		count(recvmsg);
		set_sock_addr4(ctx, &from);
	}
	return SOCK_PROCEED;
}

SEC("cgroup/recvmsg6")
int recvmsg6(struct bpf_sock_addr *ctx)
{
	struct addr_port from = sock_addr6(ctx);

	if (show_frontend(ctx, &from) == VERDICT_CONTINUE) {
		count(recvmsg);
		set_sock_addr6(ctx, &from);
	}
	return SOCK_PROCEED;
}

SEC("cgroup/getpeername4")
int getpeername4(struct bpf_sock_addr *ctx)
{
	struct addr_port peer = sock_addr4(ctx);

	if (show_frontend(ctx, &peer) == VERDICT_CONTINUE) {
		count(getpeername);
		set_sock_addr4(ctx, &peer);
	}
	return SOCK_PROCEED;
}

SEC("cgroup/getpeername6")
int getpeername6(struct bpf_sock_addr *ctx)
{
	struct addr_port peer = sock_addr6(ctx);

	if (show_frontend(ctx, &peer) == VERDICT_CONTINUE) {
		count(getpeername);
		set_sock_addr6(ctx, &peer);
	}
	return SOCK_PROCEED;
}

SEC("cgroup/sock_release")
int sock_release(struct bpf_sock *sk)
{
	forget_socket(sk);
	return SOCK_PROCEED;
}

SEC("sockops")
int sock_ops(struct bpf_sock_ops *ctx)
{
	watch(ctx);
	return SOCK_PROCEED;
}

/* A packet of no flow may begin one, and is rewritten then. */
static __always_inline int begin(struct __sk_buff *skb, struct packet *pkt)
{
	struct flow *way = empty_flow();
	int v;

	if (!way)
		return VERDICT_PASS;
	v = pkt->tuple.hook == HOOK_IN ? balance(skb, pkt, way) :
					 from_device(skb, pkt, way);
	if (v != VERDICT_BEGIN)
		return v;
	v = begin_flow(pkt, way);
	if (v == VERDICT_CONTINUE && !rewrite(skb, pkt, &way->to))
		return VERDICT_REFUSE;
	return v;
}

/*
 * What every packet goes through at a device. Programs of others that are
 * attached there come after: ours only ever decides to drop.
 */
static __always_inline int handle_packet(struct __sk_buff *skb,
					 struct packet *pkt, __u32 l3_off)
{
	enum hook hook = pkt->tuple.hook;
	__u32 kind;
	int v;

	if (!read_plain(skb, pkt, l3_off)) {
		kind = skip_vlan_tags(skb, &l3_off);
		if (!parse(skb, pkt, l3_off, kind))
			return TC_ACT_UNSPEC;
	}
	if (hook == HOOK_IN && is_martian(pkt))
		return refuse(DROP_MARTIAN, 0), TC_ACT_SHOT;
	if (!may_have_flow(pkt))
		v = may_be_balanced(pkt) ? VERDICT_CONTINUE : VERDICT_PASS;
	else if (!pkt->plain && is_icmp_error(skb, pkt))
		v = translate_error(skb, pkt);
	else
		v = follow_flow(skb, pkt);
	if (v == VERDICT_CONTINUE)
		v = begin(skb, pkt);
	if (v == VERDICT_RESET)
		return reset(skb, pkt);
	return v == VERDICT_REFUSE ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

/* On devices on which others reach the node. */
SEC("tc")
int device_in(struct __sk_buff *skb)
{
	struct packet pkt = { .tuple.hook = HOOK_IN };
	int next = handle_packet(skb, &pkt, ETH_HLEN);

	if (redirect_flows && next == TC_ACT_UNSPEC && pkt.rewritten)
		return send_on(skb, &pkt);
	return next;
}

SEC("tc")
int device_out(struct __sk_buff *skb)
{
	struct packet pkt = { .tuple.hook = HOOK_OUT };

	return handle_packet(skb, &pkt, ETH_HLEN);
}

/* The same on devices whose packets have no Ethernet header. */
SEC("tc")
int l3_in(struct __sk_buff *skb)
{
	struct packet pkt = { .tuple.hook = HOOK_IN };

	return handle_packet(skb, &pkt, 0);
}

SEC("tc")
int l3_out(struct __sk_buff *skb)
{
	struct packet pkt = { .tuple.hook = HOOK_OUT };

	return handle_packet(skb, &pkt, 0);
}

/* On the node's end of the devices of pods: in is from the pod, out to it. */
SEC("tc")
int pod_in(struct __sk_buff *skb)
{
	struct packet pkt = { .tuple.hook = HOOK_IN, .pod = true };

	return handle_packet(skb, &pkt, ETH_HLEN);
}

SEC("tc")
int pod_out(struct __sk_buff *skb)
{
	struct packet pkt = { .tuple.hook = HOOK_OUT, .pod = true };

	return handle_packet(skb, &pkt, ETH_HLEN);
}

SEC("iter/tcp")
int destroy_tcp(struct bpf_iter__tcp *ctx)
{
	struct sock_common *sk = ctx->sk_common;

	if (sk)
		destroy_if_broken(ctx->meta, sk, IPPROTO_TCP);
	return 0;
}

SEC("iter/udp")
int destroy_udp(struct bpf_iter__udp *ctx)
{
	struct udp_sock *sk = ctx->udp_sk;

	if (sk)
		destroy_if_broken(ctx->meta, (struct sock_common *)sk,
				  IPPROTO_UDP);
	return 0;
}

SEC("iter/bpf_sk_storage_map")
int list_stored(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	list_promises(ctx->meta, ctx->value);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
