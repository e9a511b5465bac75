/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Which address will the packets of a socket have? Source ranges are about it.
 *
 * A socket of TCP that is bound to an address has that. Else a packet gets its address from the
 * route that it takes. In the node's own
 * namespace the agent knows which one that is. A pod has, as far as Services are
 * concerned, one address of each family: it is read from the kernel's lists.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../lb/frontend.h"
#include "../lib/addr.h"
#include "../lib/kernel.h"
#include "../lib/verdict.h"

#define CLIENT_DEVICES 64   /* of a namespace that are looked at */
#define CLIENT_ADDRESSES 16 /* of a device */

/* What follows on a list: the first word of its kind of element. */
static __always_inline struct list_head *next_of(struct list_head *at)
{
	struct list_head *next = NULL;

	bpf_probe_read_kernel(&next, sizeof(next), at);
	return next;
}

/* The search for an address in a namespace. */
struct client_search {
	struct list_head *head, *at; /* of its devices, a ring */
	bool ip4;
	__u32 found; /* no bool: the verifier wants to see that it is 0 or 1 */
	struct ip_addr addr;
};

/* The first address of a device that others than its neighbours may use. */
static __always_inline bool device_ip4(struct net_device *dev,
				       struct ip_addr *addr)
{
	struct in_ifaddr *a = BPF_CORE_READ(dev, ip_ptr, ifa_list);

	for (int i = 0; a && i < CLIENT_ADDRESSES; i++) {
		if (BPF_CORE_READ(a, ifa_scope) == IFADDR_SCOPE_GLOBAL) {
			*addr = from_ip4(BPF_CORE_READ(a, ifa_local));
			return true;
		}
		a = BPF_CORE_READ(a, ifa_next);
	}
	return false;
}

static __always_inline bool device_ip6(struct net_device *dev,
				       struct ip_addr *addr)
{
	struct inet6_dev *in6 = BPF_CORE_READ(dev, ip6_ptr);
	struct list_head *at;

	if (!in6)
		return false;
	at = BPF_CORE_READ(in6, addr_list.next);
	for (int i = 0; i < CLIENT_ADDRESSES; i++) {
		struct inet6_ifaddr *a;

		if (!at || at == &in6->addr_list)
			return false;
		a = (void *)at -
		    bpf_core_field_offset(struct inet6_ifaddr, if_list);
		if (BPF_CORE_READ(a, scope) == INET6_SCOPE_GLOBAL) {
			BPF_CORE_READ_INTO(addr, a, addr);
			return true;
		}
		at = next_of(at);
	}
	return false;
}

/* Goes on to the next device, which may have an address; false if there is none. */
static __always_inline bool search_device(struct client_search *s)
{
	struct net_device *dev;
	__u32 flags;

	s->found = 0;
	if (!s->at || s->at == s->head)
		return false;
	dev = (void *)s->at -
	      bpf_core_field_offset(struct net_device, dev_list);
	flags = BPF_CORE_READ(dev, flags);
	if (flags & IFF_UP && !(flags & IFF_LOOPBACK))
		s->found = s->ip4 ? device_ip4(dev, &s->addr) :
				    device_ip6(dev, &s->addr);
	s->at = next_of(s->at);
	return true;
}

/* One device; 1 ends the search. A callback, so that it is verified once. */
static long look_at_device(__u32 i, void *data)
{
	struct client_search *s = data;

	return !search_device(s) || s->found;
}

/*
 * Begins a search in a namespace; false where its devices are not known. Not inlined: what it
 * has on the stack is not needed for the search.
 */
static __noinline bool begin_search(struct client_search *s, __u64 cookie)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct net *net = BPF_CORE_READ(task, nsproxy, net_ns);

	/* A socket may belong to another namespace than the task. */
	if (!net || BPF_CORE_READ(net, net_cookie) != cookie)
		return false;
	s->head = &net->dev_base_head;
	s->at = BPF_CORE_READ(net, dev_base_head.next);
	return true;
}

/* The address of a client in a pod; false where it is not known. */
static __noinline bool pod_address(struct client_search *s, __u64 cookie)
{
	if (!begin_search(s, cookie))
		return false;
	bpf_loop(CLIENT_DEVICES, look_at_device, s, 0);
	return s->found;
}

/* The address that packets of the node to elsewhere have. */
static __always_inline bool node_address(bool ip4, struct ip_addr *addr)
{
	__u32 node = 0;
	struct device *d = bpf_map_lookup_elem(&devices, &node);

	if (!d)
		return false;
	*addr = ip4 ? d->ip4 : d->ip6;
	return !is_zero(addr);
}

/*
 * The address that a socket is bound to, or has by its peer; false where it has none yet.
 * Datagrams that an unconnected socket sends may have another one.
 */
static __always_inline bool bound_address(struct bpf_sock_addr *ctx, bool ip4,
					  struct ip_addr *addr)
{
	struct bpf_sock *sk = ctx->sk;
	__be32 own = sk->src_ip4;

	/* The compiler would choose which field to read, and the verifier wants to know. */
	asm volatile("" : "+r"(own));
	if (ip4) {
		*addr = from_ip4(own);
	} else {
		addr->word[0] = sk->src_ip6[0];
		addr->word[1] = sk->src_ip6[1];
		addr->word[2] = sk->src_ip6[2];
		addr->word[3] = sk->src_ip6[3];
	}
	return !is_unspecified(addr);
}

/* Is a socket a datagram socket that has a peer? */
static __always_inline bool is_connected(struct bpf_sock_addr *ctx)
{
	return ctx->protocol == IPPROTO_UDP &&
	       ctx->sk->state == BPF_TCP_ESTABLISHED;
}

/*
 * May the client that calls a hook use a frontend with source ranges? Where its
 * address is not known the packets go on as they are, and the node that announces the
 * address of the load balancer looks at theirs.
 */
static __noinline enum verdict
socket_allowed(struct bpf_sock_addr *ctx, const struct frontend *f, bool ip4)
{
	struct client_search s = { .ip4 = ip4 };
	__u64 cookie = bpf_get_netns_cookie(ctx);
	bool known;

	if (ctx->protocol == IPPROTO_TCP && bound_address(ctx, ip4, &s.addr))
		known = true;
	else if (cookie == node_netns_cookie)
		known = node_address(ip4, &s.addr);
	else if (is_connected(ctx) && bound_address(ctx, ip4, &s.addr))
		known = true; /* also to the agent, in another namespace */
	else
		known = kernel_readable && pod_address(&s, cookie);
	if (!known)
		return VERDICT_PASS;
	if (is_allowed(f, &s.addr))
		return VERDICT_CONTINUE;
	/* The agent, which names no port, is no client. */
	return ctx->user_port ? refuse(DROP_SOURCE_RANGE, f->service, NULL, 0) :
				VERDICT_REFUSE;
}
