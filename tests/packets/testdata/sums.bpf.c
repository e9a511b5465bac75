/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * For a test: a packet is a look at a socket that has sent and received more since, fails, and is
 * closed, counted by the functions of the hooks. All packets look at the same socket. The frame is
 * nothing but whom it counts for.
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "lb/traffic.h"

/* What a packet adds. */
#define SENT 3
#define RECEIVED 7

struct counts_for {
	__u32 service;
	__u32 backend;
};

__u64 sent, received;
struct payload counted_so_far;

SEC("xdp")
int add_sums(struct xdp_md *ctx)
{
	struct counts_for *to = (void *)(long)ctx->data;
	struct service *s;
	struct backend *b;
	struct payload p;

	if ((void *)(to + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	s = service_named(to->service);
	b = bpf_map_lookup_elem(&backends, &to->backend);
	if (!s || !b)
		return XDP_ABORTED;
	p.bytes[TO_BACKEND] = __sync_fetch_and_add(&sent, SENT) + SENT;
	p.bytes[FROM_BACKEND] =
		__sync_fetch_and_add(&received, RECEIVED) + RECEIVED;
	leave_new(&counted_so_far, &p);
	add_payload(s, b, &p);
	count_failure(s, b, FAILURE_RESET);
	add_sum(&s->connect_times[bucket_of(SENT)], 1);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
