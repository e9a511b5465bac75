/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Socket NAT entries: a socket asked for a frontend and talks to a backend. They are
 * needed to show the frontend as its peer, and to stay with the backend.
 *
 * Every hook that comes here runs under the lock of its socket, so an entry has one
 * writer; only the claim of a slot is a race, between sockets.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../lib/kernel.h"
#include "socket_storage.h"

static __always_inline struct socket_slot *socket_slot_of(__u64 cookie)
{
	__u32 i = (__u32)cookie & socket_nat_mask;

	return bpf_map_lookup_elem(&socket_nat, &i);
}

/* The slot of the socket, if it is its own. */
static __always_inline struct socket_entry *slot_entry(__u64 cookie)
{
	struct socket_slot *slot = socket_slot_of(cookie);

	return slot && slot->owner == cookie ? &slot->entry : NULL;
}

/*
 * The same of what iterators go through. What stands for a connection before and after its
 * socket has none.
 */
static __always_inline struct socket_entry *
slot_entry_of(struct sock_common *sk)
{
	unsigned char state = sk->skc_state;

	if (state == BPF_TCP_TIME_WAIT || state == BPF_TCP_NEW_SYN_RECV)
		return NULL;
	return slot_entry(bpf_get_socket_cookie(sk));
}

/* Of the entries in the storage of a socket the one for a frontend, or NULL. */
static __always_inline struct socket_entry *
stored_for_frontend(void *sk, struct stored_entries *stored,
		    const struct addr_port *frontend)
{
	__u32 i = index_of_frontend(stored->entry, STORED_ENTRIES, frontend);
	struct many_entries *m;

	if (i < STORED_ENTRIES)
		return entry_at(stored->entry, STORED_ENTRIES, i);
	m = many_of(sk, stored);
	if (!m)
		return NULL;
	i = many_for_frontend(m, frontend);
	return entry_at(m->entry, MANY_ENTRIES, i);
}

/* Of the entries in the storage of a socket one that leads to a backend, or NULL. */
static __always_inline struct socket_entry *
stored_to_backend(void *sk, struct stored_entries *stored,
		  const struct addr_port *backend, enum entry_flag without)
{
	__u32 i = index_of_backend(stored->entry, STORED_ENTRIES, backend,
				   without);
	struct many_entries *m;

	if (i < STORED_ENTRIES)
		return entry_at(stored->entry, STORED_ENTRIES, i);
	m = many_of(sk, stored);
	if (!m)
		return NULL;
	i = many_to_backend(m, backend, without);
	return entry_at(m->entry, MANY_ENTRIES, i);
}

/* The entry of a socket for a frontend, or NULL: there is one at most. */
static __always_inline struct socket_entry *
entry_for_frontend(struct bpf_sock_addr *ctx, __u64 cookie,
		   const struct addr_port *frontend)
{
	struct socket_entry *e = slot_entry(cookie);
	struct stored_entries *stored;

	if (e && entry_is_for(e, frontend))
		return e;
	stored = stored_of(ctx->sk, cookie);
	return stored ? stored_for_frontend(ctx->sk, stored, frontend) : NULL;
}

/* An entry of a socket that leads to a backend and lacks a flag, or NULL. */
static __always_inline struct socket_entry *
entry_to_backend(struct bpf_sock_addr *ctx, const struct addr_port *backend,
		 enum entry_flag without)
{
	__u64 cookie = bpf_get_socket_cookie(ctx);
	struct socket_entry *e = slot_entry(cookie);
	struct stored_entries *stored;

	if (e && entry_leads_to(e, backend) && !has_flag(e, without))
		return e;
	stored = stored_of(ctx->sk, cookie);
	return stored ? stored_to_backend(ctx->sk, stored, backend, without) :
			NULL;
}

/*
 * Answers of a backend are shown as those of one frontend at the most: the one by
 * which the socket asked last. From now on it is none of those that it has.
 */
static __always_inline void silence(struct bpf_sock_addr *ctx,
				    const struct addr_port *backend)
{
	struct socket_entry *e = entry_to_backend(ctx, backend, ENTRY_SILENT);

	if (e)
		set_flag(e, ENTRY_SILENT);
}

/*
 * The socket asks an address that is no frontend's: answers of a backend are its own.
 * What a connected IPv6 socket sends to its IPv4 peer looks the same.
 */
static __always_inline void ask_directly(struct bpf_sock_addr *ctx,
					 const struct addr_port *to)
{
	struct socket_entry *e = entry_to_backend(ctx, to, ENTRY_SILENT);

	if (e && !has_flag(e, ENTRY_CONNECTED))
		set_flag(e, ENTRY_SILENT);
}

/* The socket sends by an entry that it has: replies are of its frontend. */
static __always_inline void speak(struct bpf_sock_addr *ctx,
				  struct socket_entry *e)
{
	if (!has_flag(e, ENTRY_SILENT))
		return;
	silence(ctx, &e->backend);
	clear_flag(e, ENTRY_SILENT);
}

/*
 * Claims the slot of a socket, and closes the entry that it holds of the same
 * socket; false if another socket has it.
 */
static __always_inline bool claim_slot(struct socket_slot *slot, __u64 cookie)
{
	if (slot->owner == cookie) {
		close_entry(&slot->entry);
		return true;
	}
	return !slot->owner &&
	       __sync_val_compare_and_swap(&slot->owner, 0, cookie) == 0;
}

/* Adds the only entry of a socket, in place of those that it had. */
static __always_inline void add_entry(struct bpf_sock_addr *ctx,
				      const struct new_entry *n)
{
	struct socket_slot *slot = socket_slot_of(n->cookie);

	delete_stored(ctx->sk, n->cookie);
	if (slot && claim_slot(slot, n->cookie))
		write_entry(&slot->entry, n);
	else
		store_entry(ctx, n);
}

/*
 * Adds one more entry of a socket: the earlier ones stay, since replies to what it
 * sent before may still come.
 */
static __always_inline void add_another_entry(struct bpf_sock_addr *ctx,
					      const struct new_entry *n)
{
	struct socket_slot *slot = socket_slot_of(n->cookie);

	if (slot && slot->owner != n->cookie && claim_slot(slot, n->cookie))
		write_entry(&slot->entry, n);
	else
		store_entry(ctx, n);
}

/* Deletes the entry in the slot of a socket. */
static __always_inline void delete_entry(__u64 cookie)
{
	struct socket_slot *slot = socket_slot_of(cookie);

	if (!slot || slot->owner != cookie)
		return;
	close_entry(&slot->entry);
	slot->owner = 0;
}

/*
 * May a socket have entries? Most that send to no Service have none, and nothing more
 * is asked of them. connect() with AF_UNSPEC has no hook: this is the next that a
 * datagram socket does, and it shows that the socket has no peer any more. The entry
 * for that peer ends.
 */
static __always_inline bool has_entries(struct bpf_sock_addr *ctx, __u64 cookie)
{
	struct socket_entry *e = slot_entry(cookie);
	struct stored_entries *stored;

	if (!ctx->sk || ctx->sk->state == BPF_TCP_ESTABLISHED)
		return true;
	if (e && has_flag(e, ENTRY_CONNECTED))
		delete_entry(cookie);
	if (e)
		return true;
	stored = stored_of(ctx->sk, cookie);
	if (!stored)
		return false;
	if (has_flag(&stored->entry[0], ENTRY_CONNECTED)) {
		retire_entry(&stored->entry[0]);
		stored->entry[0].backend.pad = ENTRY_SILENT;
	}
	return true;
}

/*
 * The socket connects elsewhere. If that were the backend of an entry, the hooks would
 * still show the frontend.
 */
static __always_inline void delete_entries(struct bpf_sock_addr *ctx)
{
	__u64 cookie = bpf_get_socket_cookie(ctx);

	delete_entry(cookie);
	delete_stored(ctx->sk, cookie);
}
