/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The ports of a packet, its own or those of the first of its datagram.
 *
 * Fragments may come before the first one of their datagram, which alone has
 * ports. They are queued: their frames are kept in a map. When the first one
 * comes, it is sent to the device again, and so are those of the queue, each by a
 * clone that gets its bytes; then all of them have ports. What is queued for long
 * makes room for others. Senders use IDs again: what is older than the kernel waits for
 * fragments is forgotten.
 *
 * Only what is for an address of the node or of a Service is queued: routers must
 * not wait, since the first one may have taken another route.
 */
#pragma once

#include "../abi/maps.h"
#include "../flow/table.h"
#include "../lib/time.h"
#include "../lib/verdict.h"
#include "classify.h"
#include "packet.h"
#include "parse.h"
#include "refuse.h"

/*
 * Keeps two comparisons of a length apart. The compiler would make one of them,
 * from which the verifier learns nothing of the length itself.
 */
#define keep_apart(len) asm volatile("" : "+r"(len))

/* Fills in the ports and protocol of a fragment from those of its datagram. */
static __always_inline void take_ports(struct packet *pkt,
				       const struct datagram *d)
{
	pkt->tuple.src_port = d->ports.src;
	pkt->tuple.dst_port = d->ports.dst;
	pkt->tuple.protocol = d->protocol;
	pkt->l4_proto = d->protocol;
}

/* The kernel waits for the fragments of a datagram so long, and then forgets them. */
#define FRAGMENTS_LIVE_S 30

/* Is a datagram, or NULL, of now? Senders use its ID again. */
static __always_inline bool is_current(const struct datagram *d)
{
	return d && elapsed_bits(flow_time(coarse_now()), d->noted, 16) <=
			    flow_times(FRAGMENTS_LIVE_S);
}

/* The next number for a fragment of a datagram of which the first is missing. */
static __always_inline __u32 next_number(const struct fragment_key *key)
{
	struct datagram *d = bpf_map_lookup_elem(&fragments, key);
	struct datagram none = { .noted = flow_time(coarse_now()) };

	bpf_map_update_elem(&fragments, key, &none,
			    is_current(d) ? BPF_NOEXIST : BPF_ANY);
	d = bpf_map_lookup_elem(&fragments, key);
	return d ? __sync_fetch_and_add(&d->queued, 1) : QUEUED_FRAGMENTS;
}

/*
 * Queues a fragment. The first one may have come meanwhile, to another CPU: then
 * this one goes on with its ports.
 */
GLOBAL_FUNC int queue_fragment(struct __sk_buff *skb, struct packet *pkt,
			       const struct fragment_key *fragment)
{
	struct queued_key key = {};
	struct queued_frame *frame;
	struct datagram *d;
	__u64 len = skb->len;
	__u32 zero = 0;

	if (!pkt || !fragment)
		return VERDICT_PASS;
	key.fragment = *fragment;
	key.number = next_number(&key.fragment);
	frame = bpf_map_lookup_elem(&frame_scratch, &zero);
	if (!frame || key.number >= QUEUED_FRAGMENTS)
		return refuse_packet(pkt, DROP_FRAGMENT, 0);
	if (len < ETH_HLEN)
		return refuse_packet(pkt, DROP_FRAGMENT, 0);
	keep_apart(len);
	if (len > QUEUED_LEN)
		return refuse_packet(pkt, DROP_FRAGMENT, 0);
	frame->len = len;
	if (bpf_skb_load_bytes(skb, 0, frame->bytes, len) ||
	    bpf_map_update_elem(&fragment_queue, &key, frame, BPF_ANY))
		return refuse_packet(pkt, DROP_FRAGMENT, 0);
	d = bpf_map_lookup_elem(&fragments, &key.fragment);
	if (d && d->seen) {
		bpf_map_delete_elem(&fragment_queue, &key);
		take_ports(pkt, d);
		return VERDICT_CONTINUE;
	}
	count(fragment_queued);
	return VERDICT_REFUSE;
}

/* The frames that go to a device once more. */
struct release {
	struct __sk_buff *skb;
	struct queued_key key;
};

/* One frame. A callback, so that it is verified once. */
static long release_one(__u32 i, void *data)
{
	struct release *r = data;
	struct __sk_buff *skb = r->skb;
	struct queued_frame *frame;
	__u64 len;

	r->key.number = i;
	frame = bpf_map_lookup_elem(&fragment_queue, &r->key);
	if (!frame)
		return 0;
	len = frame->len;
	if (len < ETH_HLEN)
		return 0;
	keep_apart(len);
	if (len > QUEUED_LEN)
		return 0;
	if (!bpf_skb_change_tail(skb, len, 0) &&
	    !bpf_skb_store_bytes(skb, 0, frame->bytes, len,
				 BPF_F_RECOMPUTE_CSUM | BPF_F_INVALIDATE_HASH))
		bpf_clone_redirect(skb, skb->ifindex, BPF_F_INGRESS);
	bpf_map_delete_elem(&fragment_queue, &r->key);
	return 0;
}

/*
 * Sends the first fragment to its device again, and those that waited for it
 * after that. The packet itself has then served its turn.
 */
GLOBAL_FUNC int release(struct __sk_buff *skb,
			const struct fragment_key *fragment, __u32 n)
{
	struct release r = { .skb = skb };

	if (!fragment || n > QUEUED_FRAGMENTS)
		return VERDICT_PASS;
	r.key.fragment = *fragment;
	bpf_clone_redirect(skb, skb->ifindex, BPF_F_INGRESS);
	bpf_loop(n, release_one, &r, 0);
	count(fragment_released);
	return VERDICT_REFUSE;
}

/*
 * The ports of a fragment that has none, from the first of its datagram, which
 * it may have to wait for.
 */
static __always_inline int later_ports(struct __sk_buff *skb,
				       struct packet *pkt,
				       const struct fragment_key *key)
{
	struct datagram *d = bpf_map_lookup_elem(&fragments, key);

	if (is_current(d) && d->seen)
		take_ports(pkt, d);
	else if (!has_ports(pkt->l4_proto) || !may_be_ours(pkt))
		return VERDICT_PASS;
	else if (queue_fragment(skb, pkt, key) != VERDICT_CONTINUE)
		return VERDICT_REFUSE;
	return VERDICT_CONTINUE;
}

/*
 * Tells the other fragments of a datagram the ports, which the first one has. Those
 * of others are not remembered: they would push out those of Services.
 */
static __always_inline int first_ports(struct __sk_buff *skb,
				       struct packet *pkt,
				       const struct fragment_key *key)
{
	struct datagram *old = bpf_map_lookup_elem(&fragments, key);
	struct datagram d = {
		.ports = { pkt->tuple.src_port, pkt->tuple.dst_port },
		.protocol = pkt->l4_proto,
		.seen = 1,
		.noted = flow_time(coarse_now()),
	};
	__u32 n = is_current(old) && !old->seen ? old->queued : 0;

	if (!old && !may_have_flow(&pkt->tuple) &&
	    !may_be_balanced(&pkt->tuple))
		return VERDICT_CONTINUE;
	bpf_map_update_elem(&fragments, key, &d, BPF_ANY);
	if (!n)
		return VERDICT_CONTINUE;
	return release(skb, key, n < QUEUED_FRAGMENTS ? n : QUEUED_FRAGMENTS);
}

GLOBAL_FUNC int fragment_ports(struct __sk_buff *skb, struct packet *pkt)
{
	struct fragment_key key = {};

	if (!pkt)
		return VERDICT_PASS;
	key.src = pkt->tuple.src;
	key.dst = pkt->tuple.dst;
	key.id = pkt->fragment_id;
	key.protocol = pkt->ip4 ? pkt->l4_proto : 0;
	key.hook = pkt->tuple.hook;
	return pkt->fragment ? later_ports(skb, pkt, &key) :
			       first_ports(skb, pkt, &key);
}

/*
 * Fills in ports, and what matters of a TCP or SCTP header. A packet passes that has none, or
 * is cut short in its transport header, so that nothing begins with it.
 */
GLOBAL_FUNC int find_ports(struct __sk_buff *skb, struct packet *pkt)
{
	__u32 len;

	if (!pkt || pkt->end > skb->len)
		return VERDICT_PASS;
	if (pkt->fragment)
		return fragment_ports(skb, pkt);
	len = l4_header_len(pkt->l4_proto);
	if (!has_ports(pkt->l4_proto) || pkt->end < pkt->l4_off + len ||
	    !parse_ports(skb, pkt))
		return VERDICT_PASS;
	pkt->l4_words = len / 4;
	if (pkt->l4_proto == IPPROTO_TCP && !parse_tcp(skb, pkt))
		return VERDICT_PASS;
	if (pkt->l4_proto == IPPROTO_SCTP && !parse_sctp(skb, pkt))
		return VERDICT_PASS;
	return pkt->more_fragments ? fragment_ports(skb, pkt) :
				     VERDICT_CONTINUE;
}
