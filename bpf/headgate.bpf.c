/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The entry points, and nothing else. */
#include <linux/pkt_cls.h>

#include "abi/config.h"
#include "lb/health.h"
#include "lib/kernel.h"
#include "lib/verdict.h"
#include "sock/closing.h"
#include "sock/destroy.h"
#include "sock/sock.h"
#include "sock/sock_ops.h"
#include "sock/socket_nat.h"
#include "sock/trace.h"
#include "sock/traffic.h"
#include "tc/device.h"
#include "tc/echo.h"
#include "tc/packet.h"
#include "tc/passage.h"
#include "tc/redirect.h"
#include "xdp/trace.h"
#include "xdp/uplink.h"

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

	if (!has_entries(ctx, bpf_get_socket_cookie(ctx)))
		return SOCK_PROCEED;
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

	if (!has_entries(ctx, bpf_get_socket_cookie(ctx)))
		return SOCK_PROCEED;
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

SEC("tp_btf/tcp_retransmit_skb")
int tcp_retransmit(__u64 *ctx)
{
	note_retransmit((struct sock *)ctx[0]);
	return 0;
}

SEC("tp_btf/inet_sk_error_report")
int socket_error(__u64 *ctx)
{
	note_socket_error((struct sock *)ctx[0]);
	return 0;
}

SEC("tp_btf/tcp_destroy_sock")
int tcp_destroy(__u64 *ctx)
{
	note_destroyed((struct sock *)ctx[0]);
	return 0;
}

/* In place of these three, where the kernel refuses them. */
SEC("sockops")
int sock_ops(struct bpf_sock_ops *ctx)
{
	watch(ctx);
	return SOCK_PROCEED;
}

/* On devices on which others reach the node. */
SEC("tc")
int device_in(struct __sk_buff *skb)
{
	struct packet pkt;
	int next = handle_packet(skb, &pkt,
				 (struct point){ HOOK_IN, false, ETH_HLEN });

	if (redirect_flows && next == TC_ACT_UNSPEC && pkt.rewritten)
		return send_on(skb, &pkt);
	return next;
}

SEC("tc")
int device_out(struct __sk_buff *skb)
{
	struct packet pkt;
	int next = handle_packet(skb, &pkt,
				 (struct point){ HOOK_OUT, false, ETH_HLEN });

	if (express_sets && next == TC_ACT_UNSPEC && pkt.rewritten)
		add_express(skb, &pkt);
	return next;
}

/* What of all that is done before the kernel makes an skb. */
SEC("xdp.frags")
int uplink(struct xdp_md *ctx)
{
	int sent;

	if (is_traced())
		note_came(ctx);
	sent = send_here(ctx);
	if (is_traced())
		tell_sent(ctx, sent);
	return sent;
}

/* The same on devices whose packets have no Ethernet header. */
SEC("tc")
int l3_in(struct __sk_buff *skb)
{
	struct packet pkt;

	return handle_packet(skb, &pkt, (struct point){ HOOK_IN, false, 0 });
}

SEC("tc")
int l3_out(struct __sk_buff *skb)
{
	struct packet pkt;

	return handle_packet(skb, &pkt, (struct point){ HOOK_OUT, false, 0 });
}

/* On the node's end of the devices of pods: in is from the pod, out to it. */
SEC("tc")
int pod_in(struct __sk_buff *skb)
{
	struct packet pkt;

	return handle_packet(skb, &pkt,
			     (struct point){ HOOK_IN, true, ETH_HLEN });
}

SEC("tc")
int pod_out(struct __sk_buff *skb)
{
	struct packet pkt;

	return handle_packet(skb, &pkt,
			     (struct point){ HOOK_OUT, true, ETH_HLEN });
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

SEC("iter/udp")
int mark_broken_udp(struct bpf_iter__udp *ctx)
{
	struct udp_sock *sk = ctx->udp_sk;

	if (sk)
		mark_if_broken((struct sock_common *)sk);
	return 0;
}

SEC("iter/task_file")
int list_broken_udp(struct bpf_iter__task_file *ctx)
{
	name_broken_file(ctx);
	return 0;
}

SEC("iter/bpf_sk_storage_map")
int list_stored(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	list_stored_of(ctx->meta, ctx->value);
	return 0;
}

SEC("iter/bpf_sk_storage_map")
int list_many(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	list_many_of(ctx->meta, ctx->value);
	return 0;
}

SEC("iter/tcp")
int list_tcp_owners(struct bpf_iter__tcp *ctx)
{
	struct sock_common *sk = ctx->sk_common;

	if (sk)
		list_owner(ctx->meta, sk);
	return 0;
}

SEC("iter/udp")
int list_udp_owners(struct bpf_iter__udp *ctx)
{
	struct udp_sock *sk = ctx->udp_sk;

	if (sk)
		list_owner(ctx->meta, (struct sock_common *)sk);
	return 0;
}

SEC("iter/tcp")
int standing_tcp(struct bpf_iter__tcp *ctx)
{
	struct sock_common *sk = ctx->sk_common;

	if (sk)
		note_standing_slot(sk);
	return 0;
}

SEC("iter/bpf_sk_storage_map")
int standing_stored(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct stored_entries *stored = ctx->value;
	struct sock *sk = ctx->sk;

	if (sk && stored)
		note_standing(sk, &stored->entry[0]);
	return 0;
}

SEC("iter/tcp")
int payload_tcp(struct bpf_iter__tcp *ctx)
{
	struct sock_common *sk = ctx->sk_common;

	if (sk)
		count_standing_slot(sk);
	return 0;
}

SEC("iter/bpf_sk_storage_map")
int payload_stored(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct stored_entries *stored = ctx->value;
	struct sock *sk = ctx->sk;

	if (sk && stored)
		count_standing(sk, &stored->entry[0]);
	return 0;
}

/* The agent runs it to say what a probe has found out. */
SEC("syscall")
int note_probe(struct probe_result *result)
{
	return note_probe_result(result);
}

/* The agent runs it to ask a peer whether what is carried gets there. */
SEC("tc")
int ask_peer(struct __sk_buff *skb)
{
	return send_question(skb);
}

/*
 * Never called. The types of their arguments are among those of the object, from which
 * the agent takes constants of enums that nothing else has as its type.
 */
int shared_enums(enum view_size view_size, enum filter_hash filter_hash,
		 enum frontend_search frontend_search,
		 enum slot_number slot_number, enum view_index view_index)
{
	return 0;
}

int shared_peer_enums(enum home home, enum peer_flag peer_flag)
{
	return 0;
}

int shared_flow_enums(enum hook hook, enum flow_flag flow_flag,
		      enum set_flag set_flag, enum flow_time flow_time)
{
	return 0;
}

int shared_traffic_enums(enum failure failure, enum direction direction,
			 enum connect_time connect_time,
			 enum packet_count packet_count)
{
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
