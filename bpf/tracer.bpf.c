/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What people ask of sockets. It is an object of its own, which is loaded while somebody looks and
 * at no other time, so that it costs nothing then.
 *
 * It tells headgate trace what connect() and sendmsg() were decided to, attached behind the programs
 * that decide. It finds what they have done: the address that the socket goes to now, the
 * entry that they wrote, or their refusal.
 *
 * It shows headgate flow list the sockets that go to backends, by iterators.
 */
#include <linux/errno.h>

#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "abi/maps.h"
#include "abi/types.h"
#include "lib/addr.h"
#include "lib/kernel.h"

enum told_hook {
	TOLD_CONNECT,
	TOLD_SENDMSG
};

struct told {
	__u64 at_ns; /* since boot */
	__u64 netns; /* cookie of the network namespace of the socket */
	__u32 pid;
	__u32 refused; /* the error, then asked is all that is known; or 0 */
	struct addr_port asked; /* the frontend */
	struct addr_port got;	/* the backend */
	char process[16];
	enum told_hook hook;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} tellings SEC(".maps");

__u64 lost;		   /* for want of room */
struct told *type_of_told; /* keeps the type in the BTF, for Go */

/* An entry of a socket, with what the kernel knows of the socket. */
struct shown_socket {
	__u64 cookie;
	struct socket_entry entry;
	struct addr_port from;
	__u32 state; /* as linux/tcp_states.h numbers them, of datagram sockets, too */
};

/* Slots of the socket_nat map less one. */
volatile const __u32 slots_mask = 0;

/* The entry in the slot of a socket, if that is its own. */
static __always_inline const struct socket_entry *own_entry(__u64 cookie)
{
	__u32 slot = cookie & slots_mask;
	struct socket_slot *s = bpf_map_lookup_elem(&socket_nat, &slot);

	return s && s->owner == cookie ? &s->entry : NULL;
}

/* Of some entries that with a backend, NULL if there is none. */
static __always_inline const struct socket_entry *
entry_among(const struct socket_entry *entries, __u32 n,
	    const struct addr_port *to)
{
	for (__u32 i = 0; i < n; i++)
		if (same_addr_port(&entries[i].backend, to))
			return &entries[i];
	return NULL;
}

/* The entry of a socket with the backend that it goes to, NULL where it has none. */
static __always_inline const struct socket_entry *
entry_behind(struct bpf_sock_addr *ctx, const struct addr_port *to)
{
	const struct socket_entry *e = own_entry(bpf_get_socket_cookie(ctx));
	struct stored_entries *stored;
	struct many_entries *many;

	if (e && same_addr_port(&e->backend, to))
		return e;
	if (!ctx->sk)
		return NULL;
	stored = bpf_sk_storage_get(&stored_entries, ctx->sk, NULL, 0);
	if (!stored)
		return NULL;
	e = entry_among(stored->entry, STORED_ENTRIES, to);
	if (e)
		return e;
	many = bpf_sk_storage_get(&many_entries, ctx->sk, NULL, 0);
	return many ? entry_among(many->entry, MANY_ENTRIES, to) : NULL;
}

static __always_inline int tell(struct bpf_sock_addr *ctx, struct addr_port to,
				enum told_hook hook)
{
	int error = bpf_get_retval();
	bool refused = error == -ECONNREFUSED || error == -EADDRNOTAVAIL;
	struct addr_port asked = to;
	struct told *t;

	if (!to.port)
		return 1; /* no Service has it, see RECONNECT_ADDRESS */
	if (!refused) {
		const struct socket_entry *e = entry_behind(ctx, &to);

		if (!e || !e->backend_id)
			return 1; /* not of a Service, or not yet */
		asked = e->frontend;
	}
	t = bpf_ringbuf_reserve(&tellings, sizeof(*t), 0);
	if (!t) {
		__sync_fetch_and_add(&lost, 1);
		return 1;
	}
	t->at_ns = bpf_ktime_get_boot_ns();
	t->netns = bpf_get_netns_cookie(ctx);
	t->pid = bpf_get_current_pid_tgid() >> 32;
	t->refused = refused ? -error : 0;
	t->asked = asked;
	t->got = to;
	t->got.pad = 0;
	t->asked.pad = 0;
	bpf_get_current_comm(t->process, sizeof(t->process));
	t->hook = hook;
	t->pad = 0;
	bpf_ringbuf_submit(t, 0);
	return 1; /* as the programs before have decided */
}

static __always_inline struct addr_port address4(struct bpf_sock_addr *ctx)
{
	return (struct addr_port){
		.addr = from_ip4(ctx->user_ip4),
		.port = (__be16)ctx->user_port,
		.protocol = ctx->protocol,
	};
}

static __always_inline struct addr_port address6(struct bpf_sock_addr *ctx)
{
	return (struct addr_port){
		.addr.word = { ctx->user_ip6[0], ctx->user_ip6[1],
			       ctx->user_ip6[2], ctx->user_ip6[3] },
		.port = (__be16)ctx->user_port,
		.protocol = ctx->protocol,
	};
}

SEC("cgroup/connect4")
int tell_connect4(struct bpf_sock_addr *ctx)
{
	return tell(ctx, address4(ctx), TOLD_CONNECT);
}

SEC("cgroup/connect6")
int tell_connect6(struct bpf_sock_addr *ctx)
{
	return tell(ctx, address6(ctx), TOLD_CONNECT);
}

SEC("cgroup/sendmsg4")
int tell_sendmsg4(struct bpf_sock_addr *ctx)
{
	return tell(ctx, address4(ctx), TOLD_SENDMSG);
}

SEC("cgroup/sendmsg6")
int tell_sendmsg6(struct bpf_sock_addr *ctx)
{
	return tell(ctx, address6(ctx), TOLD_SENDMSG);
}

/* A function of its own, so that the type stands in the BTF. */
static __noinline long write_shown(struct seq_file *seq,
				   const struct shown_socket *s)
{
	return bpf_seq_write(seq, s, sizeof(*s));
}

/* Of a retired entry nothing is in flight. */
static __always_inline void show_entry(struct seq_file *seq,
				       struct shown_socket *s,
				       const struct socket_entry *e)
{
	if (!e->backend_id)
		return;
	s->entry = *e;
	write_shown(seq, s);
}

static __always_inline struct addr_port
own_address(const struct sock_common *sk, __u8 protocol)
{
	struct addr_port own = { .port = bpf_htons(sk->skc_num),
				 .protocol = protocol };

	if (sk->skc_family != AF_INET6) {
		own.addr = from_ip4(sk->skc_rcv_saddr);
		return own;
	}
	for (int i = 0; i < 4; i++)
		own.addr.word[i] = sk->skc_v6_rcv_saddr.in6_u.u6_addr32[i];
	return own;
}

/*
 * Shows the entries of a socket. What stands for a connection before and after its
 * socket has none.
 */
static __always_inline void show_socket(struct bpf_iter_meta *meta,
					struct sock_common *sk, __u8 protocol)
{
	struct shown_socket s = { .state = sk->skc_state };
	const struct socket_entry *e;
	struct stored_entries *stored;
	struct many_entries *many;

	if (s.state == BPF_TCP_TIME_WAIT || s.state == BPF_TCP_NEW_SYN_RECV)
		return;
	s.cookie = bpf_get_socket_cookie(sk);
	s.from = own_address(sk, protocol);
	e = own_entry(s.cookie);
	if (e)
		show_entry(meta->seq, &s, e);
	stored = bpf_sk_storage_get(&stored_entries, sk, NULL, 0);
	if (!stored)
		return;
	for (int i = 0; i < STORED_ENTRIES; i++)
		show_entry(meta->seq, &s, &stored->entry[i]);
	many = bpf_sk_storage_get(&many_entries, sk, NULL, 0);
	for (int i = 0; many && i < MANY_ENTRIES; i++)
		show_entry(meta->seq, &s, &many->entry[i]);
}

SEC("iter/tcp")
int show_tcp(struct bpf_iter__tcp *ctx)
{
	struct sock_common *sk = ctx->sk_common;

	if (sk)
		show_socket(ctx->meta, sk, IPPROTO_TCP);
	return 0;
}

SEC("iter/udp")
int show_udp(struct bpf_iter__udp *ctx)
{
	struct udp_sock *sk = ctx->udp_sk;

	if (sk)
		show_socket(ctx->meta, (struct sock_common *)sk, IPPROTO_UDP);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
