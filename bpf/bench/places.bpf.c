/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * For `make bench`: connect() over IPv4 as the product does it, with the same
 * look-ups in the same maps, but with the promise kept in one place or another.
 */
#include <stdbool.h>
#include <stddef.h>

#include <linux/bpf.h>
#include <linux/types.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "../sock.h"

#define PLACE_ENTRIES 65536 /* as many as the product's promises by default */

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct promise);
} storage_place SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PLACE_ENTRIES);
	__type(key, __u64); /* cookie */
	__type(value, struct promise);
} hash_place SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, PLACE_ENTRIES);
	__type(key, __u64); /* cookie */
	__type(value, struct promise);
} lru_place SEC(".maps");

enum place {
	PLACE_NONE,
	PLACE_STORAGE,
	PLACE_HASH,
	PLACE_LRU,
	PLACE_SLOT
};

static __always_inline void keep(struct bpf_sock_addr *ctx, enum place place,
				 const struct offer *offer)
{
	struct promise p, *stored;
	__u64 cookie;

	switch (place) {
	case PLACE_NONE:
		return;
	case PLACE_SLOT:
		keep_promise(ctx, offer);
		return;
	case PLACE_STORAGE:
		stored = bpf_sk_storage_get(&storage_place, ctx->sk, NULL,
					    BPF_SK_STORAGE_GET_F_CREATE);
		if (stored)
			write_promise(stored, offer);
		return;
	case PLACE_HASH:
		cookie = bpf_get_socket_cookie(ctx);
		write_promise(&p, offer);
		bpf_map_update_elem(&hash_place, &cookie, &p, BPF_ANY);
		return;
	case PLACE_LRU:
		cookie = bpf_get_socket_cookie(ctx);
		write_promise(&p, offer);
		bpf_map_update_elem(&lru_place, &cookie, &p, BPF_ANY);
		return;
	}
}

static __always_inline int connect_keeping(struct bpf_sock_addr *ctx,
					   enum place place)
{
	struct addr_port to = sock_addr4(ctx);
	struct frontend *frontend;
	struct offer offer;
	enum verdict v;

	if ((v = socket_frontend(ctx, &to, &frontend)) != VERDICT_CONTINUE ||
	    (v = socket_backend(ctx, &to, frontend, &offer)) !=
		    VERDICT_CONTINUE)
		return sock_verdict(v);
	keep(ctx, place, &offer);
	count(connect);
	set_sock_addr4(ctx, &offer.choice.backend->to);
	return SOCK_PROCEED;
}

SEC("cgroup/connect4")
int connect_none(struct bpf_sock_addr *ctx)
{
	return connect_keeping(ctx, PLACE_NONE);
}

SEC("cgroup/connect4")
int connect_storage(struct bpf_sock_addr *ctx)
{
	return connect_keeping(ctx, PLACE_STORAGE);
}

SEC("cgroup/connect4")
int connect_hash(struct bpf_sock_addr *ctx)
{
	return connect_keeping(ctx, PLACE_HASH);
}

SEC("cgroup/connect4")
int connect_lru(struct bpf_sock_addr *ctx)
{
	return connect_keeping(ctx, PLACE_LRU);
}

SEC("cgroup/connect4")
int connect_slot(struct bpf_sock_addr *ctx)
{
	return connect_keeping(ctx, PLACE_SLOT);
}

SEC("cgroup/sock_release")
int release_hash(struct bpf_sock *sk)
{
	__u64 cookie = bpf_get_socket_cookie(sk);

	bpf_map_delete_elem(&hash_place, &cookie);
	return SOCK_PROCEED;
}

SEC("cgroup/sock_release")
int release_slot(struct bpf_sock *sk)
{
	forget_promise(bpf_get_socket_cookie(sk));
	return SOCK_PROCEED;
}

char _license[] SEC("license") = "Dual BSD/GPL";
