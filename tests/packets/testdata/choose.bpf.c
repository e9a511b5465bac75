/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * For a test: the choice of a backend at XDP, by the functions of the other hooks.
 * A packet is what is asked, and becomes the answer.
 */
#include <stdbool.h>

#include <linux/bpf.h>
#include <linux/types.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "affinity.h"
#include "frontend.h"

struct question {
	struct addr_port to; /* what a client elsewhere asks for, and gets */
	struct ip_addr client;
	__u32 pad;
	__u64 port; /* of the client, as in its packets */
};

SEC("xdp")
int choose(struct xdp_md *ctx)
{
	struct question *q = (void *)(long)ctx->data, asked;
	struct choice choice = {};
	struct client client;
	struct frontend *f;

	if ((void *)(q + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	asked = *q;
	f = frontend_at(&asked.to);
	if (!f || !read_view(&f->external).size)
		return XDP_ABORTED;
	client.addr = &asked.client;
	client.dst = &asked.to.addr;
	client.port = asked.port;
	if (select_from(f, read_view(&f->external), false, &client, &choice) !=
	    VERDICT_CONTINUE)
		return XDP_DROP;
	q->to = choice.backend->to;
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
