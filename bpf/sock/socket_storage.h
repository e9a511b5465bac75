/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What makes a socket NAT entry, and keeping it in the storage of its socket: slower
 * than in its slot of the socket_nat map, but never full. An entry counts as a
 * connection in flight of its backend until it is retired or deleted.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../lb/health.h"
#include "../lb/table.h"
#include "../lib/addr.h"
#include "../lib/time.h"
#include "../lib/verdict.h"

/* What a new entry is made of. */
struct new_entry {
	const struct addr_port *frontend;
	struct choice choice; /* without a backend: the socket waits for one */
	__u64 cookie;	      /* of the socket */
	__u64 netns;	      /* of the socket */
	enum entry_flag flags;
};

static __always_inline bool has_flag(const struct socket_entry *e,
				     enum entry_flag flag)
{
	return e->backend.pad & flag;
}

static __always_inline void set_flag(struct socket_entry *e,
				     enum entry_flag flag)
{
	e->backend.pad |= flag;
}

static __always_inline void clear_flag(struct socket_entry *e,
				       enum entry_flag flag)
{
	e->backend.pad &= ~flag;
}

/* The time as entries of datagram sockets keep it. */
static __always_inline __u8 entry_time(void)
{
	return coarse_now() >> ENTRY_TIME_SHIFT;
}

/* A socket uses an entry: that of a datagram socket has the time. */
static __always_inline void note_use(struct socket_entry *e)
{
	__u8 now;

	if (e->frontend.protocol != IPPROTO_UDP)
		return;
	now = entry_time();
	if (e->frontend.pad != now)
		e->frontend.pad = now;
}

/* Has a datagram socket used an entry within the time-out, by whole units, or is it connected? */
static __always_inline bool is_in_use(const struct socket_entry *e)
{
	__u32 most = udp_flow_timeout_s * NSEC_PER_SEC >> ENTRY_TIME_SHIFT;

	return has_flag(e, ENTRY_CONNECTED) ||
	       is_recent(entry_time(), e->frontend.pad, most + 1);
}

/* Does a connected socket wait for a backend? Its entry leads to the frontend. */
static __always_inline bool is_waiting(const struct socket_entry *e)
{
	return !e->backend_id && has_flag(e, ENTRY_CONNECTED) &&
	       same_addr_port(&e->frontend, &e->backend);
}

/* A retired entry is for no frontend, but still leads to its backend. */
static __always_inline bool entry_is_for(const struct socket_entry *e,
					 const struct addr_port *frontend)
{
	return e->backend_id && same_addr_port(&e->frontend, frontend);
}

static __always_inline bool entry_leads_to(const struct socket_entry *e,
					   const struct addr_port *backend)
{
	return same_addr_port(&e->backend, backend);
}

/* Of n entries the one for a frontend; n: none. */
static __always_inline __u32 index_of_frontend(const struct socket_entry *e,
					       __u32 n,
					       const struct addr_port *frontend)
{
	for (__u32 i = 0; i < n; i++)
		if (entry_is_for(&e[i], frontend))
			return i;
	return n;
}

/* Of n entries one that leads to a backend and lacks a flag; n: none. */
static __always_inline __u32 index_of_backend(const struct socket_entry *e,
					      __u32 n,
					      const struct addr_port *backend,
					      enum entry_flag without)
{
	for (__u32 i = 0; i < n; i++)
		if (entry_leads_to(&e[i], backend) && !has_flag(&e[i], without))
			return i;
	return n;
}

/*
 * Of n entries, a power of two, the first from an index on that is retired or was
 * never made; n: none. So those whose late replies may still come stay longest.
 */
static __always_inline __u32 free_index(const struct socket_entry *e, __u32 n,
					__u32 from)
{
	for (__u32 i = 0; i < n; i++) {
		const struct socket_entry *at = &e[(from + i) & (n - 1)];

		if (!at->backend_id && !is_waiting(at))
			return (from + i) & (n - 1);
	}
	return n;
}

/* Of n entries, a power of two, the one at an index, or NULL. */
static __always_inline struct socket_entry *entry_at(struct socket_entry *e,
						     __u32 n, __u32 index)
{
	if (index >= n)
		return NULL;
	/* The verifier forgets the comparison where the compiler moves it. */
	asm volatile("" : "+r"(index));
	return &e[index & (n - 1)];
}

/* The same of sockets that ask many frontends. */
GLOBAL_FUNC __u32 many_for_frontend(const struct many_entries *m,
				    const struct addr_port *frontend)
{
	if (!m || !frontend)
		return MANY_ENTRIES;
	return index_of_frontend(m->entry, MANY_ENTRIES, frontend);
}

GLOBAL_FUNC __u32 many_to_backend(const struct many_entries *m,
				  const struct addr_port *backend,
				  enum entry_flag without)
{
	if (!m || !backend)
		return MANY_ENTRIES;
	return index_of_backend(m->entry, MANY_ENTRIES, backend, without);
}

GLOBAL_FUNC __u32 many_free(const struct many_entries *m)
{
	if (!m)
		return MANY_ENTRIES;
	return free_index(m->entry, MANY_ENTRIES, m->next);
}

/*
 * Writes an entry where it is kept, and not first on the stack: reading at once
 * what was written in other pieces makes the CPU wait.
 */
static __always_inline void write_entry(struct socket_entry *e,
					const struct new_entry *n)
{
	struct backend *b = n->choice.backend;

	e->frontend = *n->frontend;
	e->backend = b ? b->to : *n->frontend;
	e->backend.pad = n->flags;
	e->backend_id = n->choice.id;
	e->slot = n->choice.slot;
	e->netns = n->netns;
	note_use(e);
	if (b)
		backend_opened(b);
}

/*
 * What an entry was for is in flight no more. That of a retired one was not. Returns
 * its backend, if that is still there.
 */
static __always_inline struct backend *close_entry(const struct socket_entry *e)
{
	if (!e->backend_id)
		return NULL;
	return backend_closed(e->backend_id, &e->backend);
}

/* How many sockets of the slot of a socket have entries in their storage. */
static __always_inline __u32 *sockets_stored(__u64 cookie)
{
	__u32 slot = (__u32)cookie & socket_nat_mask;
	__u32 chunk_index = slot / COUNTS_PER_CHUNK;
	struct stored_sockets *chunk =
		bpf_map_lookup_elem(&stored_sockets, &chunk_index);

	return chunk ? &chunk->sockets[slot % COUNTS_PER_CHUNK] : NULL;
}

/* May a socket have entries in its storage? To look there costs more. */
static __always_inline bool may_store(__u64 cookie)
{
	__u32 *sockets = sockets_stored(cookie);

	return !sockets || *sockets;
}

static __always_inline void count_stored(struct stored_entries *stored,
					 __u64 cookie)
{
	__u32 *sockets = sockets_stored(cookie);

	if (!sockets || stored->next & STORED_COUNTED)
		return;
	__sync_fetch_and_add(sockets, 1);
	stored->next |= STORED_COUNTED;
}

/* Only once: while programs are replaced, two see the end of a socket. */
static __always_inline void uncount_stored(struct stored_entries *stored,
					   __u64 cookie)
{
	__u32 *sockets = sockets_stored(cookie);

	if (!sockets || !(stored->next & STORED_COUNTED))
		return;
	stored->next &= ~STORED_COUNTED;
	__sync_fetch_and_add(sockets, -1);
}

/* The entries in the storage of a socket, or NULL. */
static __always_inline struct stored_entries *stored_of(void *sk, __u64 cookie)
{
	if (!may_store(cookie))
		return NULL;
	return bpf_sk_storage_get(&stored_entries, sk, NULL, 0);
}

/* The longer list there, or NULL. */
static __always_inline struct many_entries *
many_of(void *sk, const struct stored_entries *stored)
{
	if (!(stored->next & STORED_MANY))
		return NULL;
	return bpf_sk_storage_get(&many_entries, sk, NULL, 0);
}

/* Does the next entry of a socket go to the longer list? */
static __always_inline bool needs_many(struct bpf_sock *sk, __u64 cookie)
{
	struct stored_entries *stored = stored_of(sk, cookie);

	return stored &&
	       free_index(stored->entry, STORED_ENTRIES, 0) >= STORED_ENTRIES;
}

/* Where the longer list has room for an entry, or NULL. */
static __always_inline struct socket_entry *
room_of_many(struct bpf_sock *sk, struct stored_entries *stored)
{
	struct many_entries *m = bpf_sk_storage_get(
		&many_entries, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	struct socket_entry *e;
	__u32 i;

	if (!m)
		return NULL;
	stored->next |= STORED_MANY;
	i = many_free(m);
	if (i >= MANY_ENTRIES)
		i = m->next % MANY_ENTRIES;
	m->next = i + 1;
	e = entry_at(m->entry, MANY_ENTRIES, i);
	if (e && e->backend_id) {
		close_entry(e);
		count(socket_entry_replaced);
	}
	return e;
}

/* Where the storage of a socket has room for an entry, or NULL. */
static __always_inline struct socket_entry *
room_of_stored(struct bpf_sock *sk, struct stored_entries *stored)
{
	const __u32 flags = STORED_COUNTED | STORED_MANY;
	__u32 i = free_index(stored->entry, STORED_ENTRIES, stored->next);

	if (i >= STORED_ENTRIES)
		return room_of_many(sk, stored);
	stored->next = (stored->next & flags) | (i + 1);
	return entry_at(stored->entry, STORED_ENTRIES, i);
}

/* Adds an entry to the storage of its socket: slower, but seldom full. */
static __always_inline void store_entry(struct bpf_sock_addr *ctx,
					const struct new_entry *n)
{
	struct stored_entries *stored = bpf_sk_storage_get(
		&stored_entries, ctx->sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	struct socket_entry *e;

	if (stored)
		count_stored(stored, n->cookie);
	e = stored ? room_of_stored(ctx->sk, stored) : NULL;
	if (!e) {
		count(socket_entry_lost);
		return;
	}
	count(socket_entry_stored);
	write_entry(e, n);
}

/* The backend of an entry has left the Service. Its late replies may still come. */
static __always_inline struct backend *retire_entry(struct socket_entry *e)
{
	struct backend *b = close_entry(e);

	e->backend_id = 0;
	return b;
}

GLOBAL_FUNC int retire_many(struct many_entries *m)
{
	for (int i = 0; m && i < MANY_ENTRIES; i++)
		retire_entry(&m->entry[i]);
	return 0;
}

static __always_inline void retire_all(void *sk, struct stored_entries *stored,
				       __u64 cookie)
{
	struct many_entries *m = many_of(sk, stored);

	for (int i = 0; i < STORED_ENTRIES; i++)
		retire_entry(&stored->entry[i]);
	if (m)
		retire_many(m);
	uncount_stored(stored, cookie);
}

/* Deletes the entries in the storage of a socket; most have none. */
static __always_inline void delete_stored(struct bpf_sock *sk, __u64 cookie)
{
	struct stored_entries *stored = stored_of(sk, cookie);

	if (!stored)
		return;
	retire_all(sk, stored, cookie);
	bpf_sk_storage_delete(&many_entries, sk);
	bpf_sk_storage_delete(&stored_entries, sk);
}
