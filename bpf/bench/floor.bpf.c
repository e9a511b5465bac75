/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * For `make bench`: what memory alone costs a packet. In place of the programs of devices
 * these touch a table as large as the flow table, in the places where flows would be, and
 * do nothing else: no program that keeps flows there can be faster.
 */
#include <stdbool.h>
#include <stddef.h>

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_helpers.h>

#define LINES 8

struct line {
	__u64 word[8];
};

struct set {
	struct line line[LINES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct set);
} lines SEC(".maps");

volatile const __u32 sets = 0;

struct ends {
	__be32 src;
	__be32 dst;
	__be32 ports;
};

/* The set of the flow of a packet; another one of the flow's other direction. */
static __always_inline struct set *set_of(struct __sk_buff *skb, bool other)
{
	struct ends *e = (void *)(long)skb->data + ETH_HLEN +
			 offsetof(struct iphdr, saddr);
	__u64 hash;
	__u32 i;

	if ((void *)(e + 1) > (void *)(long)skb->data_end)
		return NULL;
	hash = (e->src * 0x9e3779b97f4a7c15ULL) ^
	       (e->dst * 0xc2b2ae3d27d4eb4fULL) ^
	       (e->ports * 0x165667b19e3779f9ULL) ^ other;
	hash = (hash ^ hash >> 32) * 0xd6e8feb86659fd93ULL;
	i = (hash >> 32) * sets >> 32;
	return bpf_map_lookup_elem(&lines, &i);
}

/* A line of a set, which its first one names: all say 0. */
static __always_inline struct line *named_line(struct set *s)
{
	__u64 named = *(volatile __u64 *)&s->line[0].word[0];

	return &s->line[1 + (named & (LINES - 2))];
}

/* A later packet reads the first line of a set, which says in which line its flow is. */
SEC("tc")
int later(struct __sk_buff *skb)
{
	struct set *s = set_of(skb, false);

	if (s)
		*(volatile __u64 *)&named_line(s)->word[0];
	return TC_ACT_UNSPEC;
}

/* The same, if both lines were known at once. */
SEC("tc")
int later_at_once(struct __sk_buff *skb)
{
	struct set *s = set_of(skb, false);

	if (s) {
		*(volatile __u64 *)&s->line[0].word[0];
		*(volatile __u64 *)&s->line[1].word[0];
	}
	return TC_ACT_UNSPEC;
}

/* Claims a line of a set and fills it, as a direction of a flow does. */
static __always_inline void claim(struct set *s)
{
	struct line *l;

	if (!s)
		return;
	l = named_line(s);
	__sync_val_compare_and_swap(&s->line[0].word[1], 0, 1);
	for (int i = 0; i < 8; i++)
		*(volatile __u64 *)&l->word[i] = 0;
	*(volatile __u64 *)&s->line[0].word[1] = 0;
}

/* The first packet of a flow claims a line in each of two sets. */
SEC("tc")
int first(struct __sk_buff *skb)
{
	claim(set_of(skb, true));
	claim(set_of(skb, false));
	return TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "Dual BSD/GPL";
