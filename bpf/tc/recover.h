/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Packets within a connection, of TCP or SCTP, whose original direction is not known: it made
 * room for others, or this node never had it. To choose a backend anew would break what
 * may still be mended. The backend is found by the reply direction, which may still be
 * there. Without that the kernel is asked, which goes on with what it tracks; then
 * comes session affinity, or the hash of the flow. Otherwise a client of TCP gets a reset.
 *
 * A datagram of UDP does not say whether it is within something. Its backend is found by a reply
 * direction that is in use, where such flows had to make room of late.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../flow/flood.h"
#include "../flow/table.h"
#include "../lb/affinity.h"
#include "../lb/algorithm.h"
#include "../lb/client.h"
#include "../lb/frontend.h"
#include "../lb/table.h"
#include "../lib/addr.h"
#include "../lib/time.h"
#include "../lib/verdict.h"
#include "classify.h"
#include "flow.h"
#include "packet.h"
#include "refuse.h"

/* Backends of which the reply directions are looked up. */
#define RECOVER_TRIES 32

/* The search for the backend of which there is a reply direction to the client. */
struct recovery {
	struct tuple key; /* of the reply; source is each backend in turn */
	const struct tuple *sent; /* by the client, for whom it must be a reply */
	__u32 offset;		  /* of the table */
	struct choice choice;
	bool found;
};

/* Is the reply direction of a flow of datagrams in use? */
static __always_inline bool is_answering(const struct found *reply,
					 __u64 now_ns)
{
	return reply->seen & FLOW_SEEN &&
	       flow_idle(reply->seen, now_ns) <= flow_times(udp_flow_timeout_s);
}

static long try_backend(__u32 i, void *data)
{
	struct recovery *s = data;
	struct found reply;

	s->choice.slot = s->offset + i;
	if (!find_backend(&s->choice))
		return 0;
	s->key.src = s->choice.backend->to.addr;
	s->key.src_port = s->choice.backend->to.port;
	if (!find_flow(&s->key, &reply))
		return 0;
	s->found = leads_back(s->sent, reply.flow) &&
		   (s->key.protocol != IPPROTO_UDP ||
		    is_answering(&reply, coarse_now()));
	return s->found;
}

/*
 * Finds the backend of which there is a reply direction. Not inlined, so that the
 * search takes no stack from callers that choose anew.
 */
static __noinline bool find_by_reply(const struct packet *pkt,
				     const struct frontend *f,
				     struct choice *choice)
{
	struct recovery s = {
		.key = pkt->tuple,
		.sent = &pkt->tuple,
		.offset = f->members.offset,
	};
	__u32 tries = f->members.size;

	s.key.hook = HOOK_OUT;
	s.key.dst = pkt->tuple.src;
	s.key.dst_port = pkt->tuple.src_port;
	bpf_loop(tries < RECOVER_TRIES ? tries : RECOVER_TRIES, try_backend, &s,
		 0);
	*choice = s.choice;
	return s.found;
}

/* Has a datagram that may begin a flow a backend already? */
static __always_inline bool had_backend(const struct packet *pkt,
					const struct frontend *f, __u64 now_ns,
					struct choice *choice)
{
	return pkt->l4_proto == IPPROTO_UDP && are_displaced(now_ns) &&
	       find_by_reply(pkt, f, choice);
}

/*
 * May a packet without a flow be of what the kernel knows? A connection may be older than the
 * programs, by the rules of another service proxy, which translate it still. One of the node
 * itself, or of a pod with the address of the node, may be older than a frontend that has the same
 * port. A SYN or an INIT belongs to none, and neither does a packet within a connection that has a
 * reply direction.
 */
static __always_inline bool may_be_of_others(const struct packet *pkt,
					     const struct frontend *f)
{
	struct choice choice = {};

	if (pkt->untracked)
		return false;
	if (may_begin(pkt))
		return pkt->l4_proto == IPPROTO_UDP &&
		       is_own_address(&pkt->tuple.dst);
	return (kernel_tracks || is_own_address(&pkt->tuple.dst)) &&
	       !(f && find_by_reply(pkt, f, &choice));
}

/* Seconds for which a slot that has moved has a second opinion. */
#define SLOT_CHANGE_S 600

/*
 * Finds the backend by the hash of the flow, as every node does. Where the slot has
 * moved lately, the backend that it named before goes first: what began since
 * then has a flow here.
 */
static __always_inline bool find_by_hash(const struct frontend *f,
					 struct view v, const struct client *c,
					 struct choice *choice)
{
	__u32 slot = choose_slot(v, c);
	struct slot_change *change;

	choice->slot = slot;
	change = bpf_map_lookup_elem(&slot_changes, &slot);
	if (change && change->to == slot_at(slot) &&
	    elapsed(bpf_ktime_get_coarse_ns(), change->at_ns) <
		    SLOT_CHANGE_S * NSEC_PER_SEC &&
	    still_names(f->members, change->was[0], &choice->slot) &&
	    find_backend(choice))
		return true;
	choice->slot = slot;
	return find_backend(choice);
}

/* Finds the backend that a client without a flow had; false if that is not possible. */
static __always_inline bool recover_flow(const struct packet *pkt,
					 const struct frontend *f,
					 struct view view,
					 const struct client *client,
					 struct choice *choice, bool *had_reply)
{
	struct affinity_key key = { .service = f->service };
	__u64 had;

	*had_reply = !pkt->untracked && find_by_reply(pkt, f, choice);
	if (*had_reply)
		return true;
	if (f->affinity_timeout_s) {
		key.client = pkt->tuple.src;
		if (recall_backend(f, &key, f->members, choice, &had))
			return true;
	}
	return (is_hashed(view) || client->steady) &&
	       find_by_hash(f, view, client, choice);
}

/*
 * Has everything been taken along from the maps that were in force before these?
 * Until then a client had better send again.
 */
static __always_inline bool flows_migrated(void)
{
	__u32 zero = 0;
	struct about *a = bpf_map_lookup_elem(&about, &zero);

	return a && a->flows_migrated;
}

/*
 * Are flows handed over to the kernel, before the programs go? Then none begins, and what
 * the kernel tracks by now is its own.
 */
static __always_inline bool hands_over(void)
{
	__u32 zero = 0;
	struct about *a = bpf_map_lookup_elem(&about, &zero);

	return kernel_tracks && a && a->hands_over;
}

/* What becomes of a packet within a connection whose flow cannot be recovered. */
static __always_inline enum verdict refuse_midstream(const struct packet *pkt,
						     __u32 service)
{
	refuse_packet(pkt, DROP_NO_FLOW, service);
	return flows_migrated() ? VERDICT_RESET : VERDICT_REFUSE;
}
