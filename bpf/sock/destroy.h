/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the agent asks of sockets, by iterators that it runs.
 *
 * When a backend leaves its Service, or the first one comes, connected UDP sockets are named to
 * the agent, which has them connect again (reconnect.h). Other sockets that were sent to the
 * backend are told at once, in each network namespace. Before Linux 6.5 there is no
 * bpf_sock_destroy: the agent has them destroyed through INET_DIAG.
 *
 * For a count of connections it lists what cannot be read from outside: what sockets
 * keep with themselves, and which sockets there are.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../lib/addr.h"
#include "../lib/filter.h"
#include "../lib/kernel.h"
#include "../lib/verdict.h"
#include "reconnect.h"
#include "socket_nat.h"
#include "socket_storage.h"

/* Does the socket talk, or try to talk, to just one peer? */
static __always_inline bool has_peer(const struct sock_common *sk)
{
	unsigned char state = sk->skc_state;

	/* A connected UDP socket is established, too. */
	return state == BPF_TCP_ESTABLISHED || state == BPF_TCP_SYN_SENT ||
	       state == BPF_TCP_CLOSE_WAIT;
}

static __always_inline struct addr_port peer_of(const struct sock_common *sk,
						__u8 protocol)
{
	struct addr_port peer = { .port = sk->skc_dport, .protocol = protocol };

	if (sk->skc_family != AF_INET6) {
		peer.addr = from_ip4(sk->skc_daddr);
		return peer;
	}
	for (int i = 0; i < 4; i++)
		peer.addr.word[i] = sk->skc_v6_daddr.in6_u.u6_addr32[i];
	return peer;
}

/* Has an entry lost its backend, or each entry if all are destroyed? */
static __always_inline bool is_lost(const struct socket_entry *e,
				    const struct addr_port *peer)
{
	if (has_not_reconnected(e, peer))
		return true;
	return entry_leads_to(e, peer) && (destroy_all || is_broken(e));
}

/* The entry of a socket that leads to its peer, or to where the agent could not connect it; or NULL. */
static __noinline struct socket_entry *
entry_of_peer(struct sock_common *sk, const struct addr_port *peer)
{
	struct socket_entry *e = slot_entry(bpf_get_socket_cookie(sk));
	struct stored_entries *stored;

	if (e && (has_not_reconnected(e, peer) || entry_leads_to(e, peer)))
		return e;
	stored = bpf_sk_storage_get(&stored_entries, sk, NULL, 0);
	if (!stored)
		return NULL;
	if (has_not_reconnected(&stored->entry[0], peer))
		return &stored->entry[0];
	return stored_to_backend(sk, stored, peer, 0);
}

/* A function of its own, so that the type stands in the BTF. */
static __noinline long write_name(struct seq_file *seq,
				  const struct named_socket *s)
{
	return bpf_seq_write(seq, s, sizeof(*s));
}

/* Names a socket to the agent; 0 or an error. */
static __always_inline long name_socket(struct seq_file *seq,
					struct sock_common *sk, __u8 protocol)
{
	struct named_socket s = {
		.cookie = bpf_get_socket_cookie(sk),
		.device = sk->skc_bound_dev_if,
		.local_port = bpf_htons(sk->skc_num),
		.peer_port = sk->skc_dport,
		.family = sk->skc_family,
		.protocol = protocol,
	};

	if (s.family != AF_INET6) {
		s.local[0] = sk->skc_rcv_saddr;
		s.peer[0] = sk->skc_daddr;
		return write_name(seq, &s);
	}
	for (int i = 0; i < 4; i++) {
		s.local[i] = sk->skc_v6_rcv_saddr.in6_u.u6_addr32[i];
		s.peer[i] = sk->skc_v6_daddr.in6_u.u6_addr32[i];
	}
	return write_name(seq, &s);
}

/*
 * Marks a UDP socket that has lost its backend. Maps change while the agent has sockets connect again: those
 * that lose their backend meanwhile are not destroyed, but connect again the next time.
 */
static __always_inline void mark_if_broken(struct sock_common *sk)
{
	struct socket_entry *e;
	struct addr_port peer;

	if (!has_peer(sk))
		return;
	peer = peer_of(sk, IPPROTO_UDP);
	e = entry_of_peer(sk, &peer);
	if (!e)
		return;
	if (is_lost(e, &peer))
		set_flag(e, ENTRY_LOST);
	else
		clear_flag(e, ENTRY_LOST);
}

/* May the agent still have a UDP socket connect again, as it loses its backend only now? */
static __always_inline bool is_newly_lost(const struct socket_entry *e,
					  const struct addr_port *peer)
{
	return peer->protocol == IPPROTO_UDP && !destroy_all &&
	       !has_flag(e, ENTRY_LOST) && !has_not_reconnected(e, peer);
}

static __always_inline void destroy_if_broken(struct bpf_iter_meta *meta,
					      struct sock_common *sk,
					      __u8 protocol)
{
	struct socket_entry *e;
	struct addr_port peer;
	long err;

	if (!has_peer(sk))
		return;
	peer = peer_of(sk, protocol);
	e = entry_of_peer(sk, &peer);
	if (!e || !is_lost(e, &peer) || is_newly_lost(e, &peer))
		return;
	/* The kernel has refused its backend, where nothing is in flight. */
	if (has_not_reconnected(e, &peer))
		retire_entry(e);
	if (name_sockets)
		err = name_socket(meta->seq, sk, protocol);
	else if (bpf_sock_destroy)
		err = bpf_sock_destroy(sk);
	else
		return;
	if (!err)
		count(socket_destroyed);
}

#define CGROUP_DEPTH 32 /* levels of cgroups that are looked at */

/* Do the socket programs run for a socket? */
static __always_inline bool is_in_cgroup(const struct sock *sk)
{
	struct cgroup *c = sk->sk_cgrp_data.cgroup;

	for (int i = 0; c && i < CGROUP_DEPTH; i++) {
		if (BPF_CORE_READ(c, kn, id) == cgroup_id)
			return true;
		c = (void *)BPF_CORE_READ(c, self.parent);
	}
	return false;
}

/*
 * Is a socket without an entry older than the frontend at its peer? The kernel must never refuse to connect it to
 * RECONNECT_ADDRESS: some of its datagrams would go there. So the programs have to run for it. If packets of
 * pods are balanced, those of the socket may be already.
 */
static __always_inline bool is_older(const struct sock *sk,
				     const struct addr_port *peer)
{
	return kernel_readable && address_filter_has(&peer->addr) &&
	       serves_older(frontend_now(peer)) && is_in_cgroup(sk) &&
	       (!pod_devices ||
		sk->__sk_common.skc_net.net->net_cookie == node_netns_cookie);
}

/* A function of its own, so that the type stands in the BTF. */
static __noinline long write_file(struct seq_file *seq,
				  const struct socket_file *f)
{
	return bpf_seq_write(seq, f, sizeof(*f));
}

/* The ID of a process in the process namespace of the agent, which reads the iterator. */
static __always_inline int process_of(struct task_struct *task)
{
	struct task_struct *agent = (void *)bpf_get_current_task();
	void *id;
	int nr = 0;

	if (!kernel_readable)
		return task->tgid;
	id = BPF_CORE_READ(task, group_leader, thread_pid);
	id += bpf_core_field_offset(struct pid, numbers) +
	      bpf_core_type_size(struct upid) *
		      BPF_CORE_READ(agent, thread_pid, level);
	bpf_core_read(&nr, sizeof(nr), &((struct upid *)id)->nr);
	return nr;
}

/*
 * Names an open file to the agent if it is a connected UDP socket that is to connect again. A
 * thread with a table of files of its own is left out: the agent cannot take a file from it.
 */
static __always_inline void name_broken_file(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct socket_entry *e;
	struct sock_common *sk;
	struct socket *socket;
	struct sock *sock;
	struct addr_port peer;
	struct socket_file f;

	if (!task || !file || task->pid != task->tgid)
		return;
	socket = bpf_sock_from_file(file);
	sock = socket ? socket->sk : NULL;
	if (!sock || sock->sk_protocol != IPPROTO_UDP)
		return;
	sk = &sock->__sk_common;
	if (!has_peer(sk))
		return;
	peer = peer_of(sk, IPPROTO_UDP);
	e = entry_of_peer(sk, &peer);
	if (e ? !is_lost(e, &peer) : !is_older(sock, &peer))
		return;
	f = (struct socket_file){
		.cookie = bpf_get_socket_cookie(sk),
		.process = process_of(task),
		.fd = ctx->fd,
		.refused = e && has_not_reconnected(e, &peer),
	};
	write_file(ctx->meta->seq, &f);
}

/* Writes the entries in the storage of a socket, one after the other. */
static __always_inline void list_stored_of(struct bpf_iter_meta *meta,
					   const struct stored_entries *stored)
{
	if (stored)
		bpf_seq_write(meta->seq, stored->entry, sizeof(stored->entry));
}

static __always_inline void list_many_of(struct bpf_iter_meta *meta,
					 const struct many_entries *m)
{
	if (m)
		bpf_seq_write(meta->seq, m->entry, sizeof(m->entry));
}

/* Writes the cookie of a socket that has a slot of the socket_nat map. */
static __always_inline void list_owner(struct bpf_iter_meta *meta,
				       struct sock_common *sk)
{
	__u64 cookie;

	if (!slot_entry_of(sk))
		return;
	cookie = bpf_get_socket_cookie(sk);
	bpf_seq_write(meta->seq, &cookie, sizeof(cookie));
}
