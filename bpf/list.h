/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Lists what sockets keep with themselves, which cannot be read from outside: for
 * the agent, which counts connections anew.
 */
#pragma once

#include "destroy.h"

struct bpf_iter__bpf_sk_storage_map {
	struct bpf_iter_meta *meta;
	void *value;
} __attribute__((preserve_access_index));

/* Writes the promises of a socket, as the map has them. */
static __always_inline void list_promises(struct bpf_iter_meta *meta,
					  struct stored_promises *stored)
{
	if (stored)
		bpf_seq_write(meta->seq, stored, sizeof(*stored));
}
