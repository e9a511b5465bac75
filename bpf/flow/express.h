/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Express entries: what TC made of the last packet of a flow that goes on to another
 * node, both hooks together, with its next hop. TC decides and writes them, XDP repeats.
 *
 * The flow table could be read at XDP, too. It says the same in four cache lines and two
 * look-ups, and no next hop; an entry is two lines beside each other, which one look-up
 * finds, and has the way of just this flow, as policy routes and ECMP give it.
 *
 * An entry holds for as long as TC would follow the flow without a question: until that
 * is to be noted, a second at the most, and until the agent takes something away. Each CPU
 * has its own, since the queue of a device gives the packets of a flow to one CPU: so
 * they need no locks. Where that is not so, XDP finds nothing and TC goes on.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../lib/time.h"
#include "../lib/verdict.h"
#include "table.h"
#include "traffic.h"

/* How often the agent has taken something away. */
static __always_inline __u32 current_epoch(void)
{
	__u32 zero = 0;
	struct about *a = bpf_map_lookup_elem(&about, &zero);

	return a ? *(volatile __u32 *)&a->epoch : 0;
}

static __always_inline struct passage *this_passage(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&passage, &zero);
}

/* Does what was noted at a time of an epoch hold now? */
static __always_inline bool holds(__u32 epoch, __u32 noted)
{
	return epoch == current_epoch() &&
	       elapsed_ticks(flow_time(coarse_now()), noted) < NOTE_TIMES;
}

/* Does an entry say what becomes of the packets of its flow now? */
static __always_inline bool is_in_force(const struct express *e)
{
	return e->mtu && holds(e->epoch, e->noted);
}

/* The entries of this CPU among which that of a tuple is, by the hash of that. */
static __always_inline struct express_set *express_set(__u64 hash)
{
	__u32 index = (hash >> 32) * express_sets >> 32;

	index += bpf_get_smp_processor_id() * express_sets;
	return bpf_map_lookup_elem(&express, &index);
}

/* Without a branch for each word. */
static __always_inline bool is_express_of(const struct express *e,
					  const struct tuple *came)
{
	const __u64 *a = (const void *)&e->came, *b = (const void *)came;
	__u64 differs = 0;

	for (int i = 0; i < KEY_WORDS; i++)
		differs |= a[i] ^ b[i];
	return !differs;
}

/* The entry of a tuple that comes into the node, in force or not; NULL: none. */
static __always_inline struct express *find_express(struct express_set *s,
						    const struct tuple *came)
{
	if (!s)
		return NULL;
	for (int w = 0; w < EXPRESS_WAYS; w++)
		if (is_express_of(&s->way[w], came))
			return &s->way[w];
	return NULL;
}

/*
 * The entry of a flow, whose packets count where that stands, if it says what becomes of one now.
 * What may end the flow ends the entry.
 */
static __always_inline struct express *
express_to_repeat(const struct tuple *came, bool ends)
{
	__u64 hash = flow_hash(came);
	struct express_set *s = express_set(hash);
	struct express *e;

	fetch_traffic(first_set(hash));
	e = find_express(s, came);
	if (e && ends)
		e->mtu = 0;
	return e && is_in_force(e) ? e : NULL;
}

/*
 * Counts a packet that was repeated, with so many bytes of payload, as both hooks of TC do, and the
 * redirection between them.
 */
static __always_inline void count_repeated(const struct express *e, __u32 bytes)
{
	struct counters *c = cpu_counters();

	count_packet(e->counts_at, bytes);
	if (!c)
		return;
	c->flow_packet += 2;
	c->flow_redirected++;
	c->flow_repeated++;
}

/* Where the entry of a tuple may stand: its own place, or one that has come free. */
static __always_inline struct express *express_place(const struct tuple *came)
{
	struct express_set *s = express_set(flow_hash(came));
	struct express *free = NULL;

	if (!s)
		return NULL;
	for (int w = 0; w < EXPRESS_WAYS; w++) {
		if (is_express_of(&s->way[w], came))
			return &s->way[w];
		if (!is_in_force(&s->way[w]))
			free = &s->way[w];
	}
	return free;
}

/* The device to which a driver may return what came by it, 0 for none. */
static __always_inline __u32 turning(const struct device *out, __u32 ifindex)
{
	return out->flags & DEVICE_VETH ? 0 : ifindex;
}
