/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What packets those who trace are told of, as long as they say that they look: up to as many from
 * each CPU as a person can read. The others are counted.
 */
#pragma once

#include "../abi/maps.h"
#include "time.h"

/* Is a time yet to come? Whoever was killed looks no more when the time is over. */
static __always_inline bool is_to_come(const __u64 *time_ns)
{
	__u64 until_ns = *(const volatile __u64 *)time_ns;

	return __builtin_expect(until_ns != 0, 0) && coarse_now() < until_ns;
}

/* Does somebody look at packets at drivers, and at what TC carries? */
static __always_inline bool is_traced(void)
{
	__u32 zero = 0;
	struct about *a = bpf_map_lookup_elem(&about, &zero);

	return a && is_to_come(&a->traced_until_ns);
}

/* Does somebody look at packets that are refused? */
static __always_inline bool are_drops_traced(void)
{
	__u32 zero = 0;
	struct about *a = bpf_map_lookup_elem(&about, &zero);

	return a && is_to_come(&a->drops_until_ns);
}

/* What this CPU tells in a map of such. */
static __always_inline struct told_packets *told_in(void *map)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(map, &zero);
}

/* The place of the packet of a number. */
static __always_inline struct told_packet *told_place(struct told_packets *t,
						      __u64 number)
{
	return &t->packet[number % TOLD_PACKETS];
}

/* May one more be told of? */
static __always_inline bool has_room_to_tell(struct told_packets *t,
					     __u64 now_ns)
{
	if (elapsed(now_ns, t->since_ns) >= TOLD_EACH_MS * 1000000ULL) {
		t->since_ns = now_ns;
		t->told = 0;
	}
	if (t->told < TOLD_MOST) {
		t->told++;
		return true;
	}
	t->left_out++;
	return false;
}

/* Notes a packet as it came, in the next place; NULL if there were too many. */
static __always_inline struct told_packet *
begin_to_tell(struct told_packets *t, const struct tuple *came, __u32 ifindex)
{
	struct told_packet *p = told_place(t, t->last + 1);
	__u64 now_ns = bpf_ktime_get_ns();

	if (!has_room_to_tell(t, now_ns))
		return NULL;
	*(volatile __u64 *)&p->number = 0;
	p->at_ns = now_ns;
	p->ifindex = ifindex;
	p->came = *came;
	return p;
}

/* Has the packet in the next place read. */
static __always_inline void end_telling(struct told_packets *t,
					struct told_packet *p)
{
	t->last++;
	*(volatile __u64 *)&p->number = t->last;
}

/* Tells of a packet that is refused. */
static __always_inline void tell_refused(enum drop_reason reason, __u32 service,
					 const struct tuple *ends,
					 __u32 ifindex)
{
	struct told_packets *t = told_in(&drops_told);
	struct told_packet *p = t ? begin_to_tell(t, ends, ifindex) : NULL;

	if (!p)
		return;
	p->verdict = TOLD_REFUSED;
	p->reason = reason;
	p->service = service;
	end_telling(t, p);
}
