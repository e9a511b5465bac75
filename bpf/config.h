/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Knobs. Constants that the agent sets when it loads the object; the verifier
 * removes the branches that a value makes dead.
 */
#pragma once

/*
 * Cookie of the node's own network namespace. Only there is 127.0.0.1 an
 * address of the node: in a pod it is the pod itself.
 */
volatile const __u64 node_netns_cookie = 0;

/* Entries of the promises map less one: a power of two less one. */
volatile const __u32 promises_mask = 0;
