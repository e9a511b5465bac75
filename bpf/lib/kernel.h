/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What programs know of the kernel. Of its structs stand here only the members that
 * are read; the loader finds out where they really are.
 */
#pragma once

#include <linux/errno.h>
#include <linux/in6.h>

#include <bpf/bpf_core_read.h>

#include "../abi/types.h"

#define AF_INET 2
#define AF_INET6 10
#define CHECKSUM_COMPLETE 2
#define CHECKSUM_PARTIAL 3
#define IFF_UP 0x1
#define SOCK_DONE 0x2 /* of skc_flags: the peer has closed its side */
#define IFF_LOOPBACK 0x8
#define IFADDR_SCOPE_GLOBAL 0
#define INET6_SCOPE_GLOBAL 0

struct file;
struct seq_file;
struct sk_filter;
struct udp_sock;

struct list_head {
	struct list_head *next;
} __attribute__((preserve_access_index));

typedef struct {
	__u32 val;
} __attribute__((preserve_access_index)) kuid_t;

struct user_namespace {
	int level; /* 0: the initial one */
	kuid_t owner;
} __attribute__((preserve_access_index));

struct net {
	struct list_head dev_base_head;
	struct user_namespace *user_ns;
	__u64 net_cookie;
} __attribute__((preserve_access_index));

struct nsproxy {
	struct net *net_ns;
} __attribute__((preserve_access_index));

/* The ID of a task in each process namespace that it is in, from the outermost one on. */
struct upid {
	int nr;
} __attribute__((preserve_access_index));

struct pid {
	unsigned int level;
	struct upid numbers[1];
} __attribute__((preserve_access_index));

struct task_struct {
	struct nsproxy *nsproxy;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	int pid;  /* of the thread */
	int tgid; /* of its process */
} __attribute__((preserve_access_index));

struct in_ifaddr {
	struct in_ifaddr *ifa_next;
	__be32 ifa_local;
	unsigned char ifa_scope;
} __attribute__((preserve_access_index));

struct in_device {
	struct in_ifaddr *ifa_list;
} __attribute__((preserve_access_index));

struct inet6_dev {
	struct list_head addr_list;
} __attribute__((preserve_access_index));

struct inet6_ifaddr {
	struct in6_addr addr;
	struct list_head if_list;
	__u16 scope;
} __attribute__((preserve_access_index));

struct net_device {
	unsigned int flags;
	struct list_head dev_list;
	struct in_device *ip_ptr;
	struct inet6_dev *ip6_ptr;
} __attribute__((preserve_access_index));

typedef struct {
	struct net *net;
} __attribute__((preserve_access_index)) possible_net_t;

typedef struct {
	__s64 counter;
} __attribute__((preserve_access_index)) atomic64_t;

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num; /* local port, host order */
	unsigned short skc_family;
	volatile unsigned char skc_state;
	unsigned long skc_flags; /* enum sock_flags */
	int skc_bound_dev_if;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	possible_net_t skc_net;
	atomic64_t skc_cookie; /* 0: not asked for yet */
} __attribute__((preserve_access_index));

struct kernfs_node {
	__u64 id;
} __attribute__((preserve_access_index));

/* The first member of a cgroup, also of its parent. */
struct cgroup_subsys_state {
	struct cgroup_subsys_state *parent;
} __attribute__((preserve_access_index));

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
} __attribute__((preserve_access_index));

struct sock_cgroup_data {
	struct cgroup *cgroup;
} __attribute__((preserve_access_index));

struct sock {
	struct sock_common __sk_common;
	struct sock_cgroup_data sk_cgrp_data;
	int sk_err;
	struct sk_filter *sk_filter;
	__u8 sk_kern_sock : 1;
	__u16 sk_protocol;
} __attribute__((preserve_access_index));

struct socket {
	struct sock *sk;
} __attribute__((preserve_access_index));

struct ipv6_pinfo {
	__s16 hop_limit; /* -1: as the node has it */
} __attribute__((preserve_access_index));

struct inet_sock {
	struct ipv6_pinfo *pinet6;
	__s16 uc_ttl; /* -1: as the node has it */
} __attribute__((preserve_access_index));

struct inet_connection_sock {
	struct {
		__u32 lrcvtime; /* jiffies, when data came last */
	} icsk_ack;
} __attribute__((preserve_access_index));

struct minmax_sample {
	__u32 v;
} __attribute__((preserve_access_index));

struct minmax {
	struct minmax_sample s[3];
} __attribute__((preserve_access_index));

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 rcv_nxt;	       /* 0 until the peer has answered a SYN */
	__u32 rcv_tstamp;      /* jiffies, when an ACK came last */
	__u32 lsndtime;	       /* jiffies, when data was sent last */
	__u64 tcp_mstamp;      /* µs, when a packet came or went last */
	__u64 first_tx_mstamp; /* µs, when what was acknowledged last was sent */
	__u64 bytes_received;
	__u64 bytes_sent; /* of payload, with what was sent again */
	__u64 bytes_retrans;
	__u32 write_seq;       /* behind what the process has written */
	__u32 snd_nxt;	       /* behind what was sent */
	struct minmax rtt_min; /* µs, the first is the least of five minutes */
	__u32 srtt_us;	       /* in eighths */
} __attribute__((preserve_access_index));

struct bpf_iter_meta {
	struct seq_file *seq;
} __attribute__((preserve_access_index));

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
} __attribute__((preserve_access_index));

struct bpf_iter__udp {
	struct bpf_iter_meta *meta;
	struct udp_sock *udp_sk;
} __attribute__((preserve_access_index));

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	__u32 fd;
	struct file *file;
} __attribute__((preserve_access_index));

struct bpf_iter__bpf_sk_storage_map {
	struct bpf_iter_meta *meta;
	struct sock *sk;
	void *value;
} __attribute__((preserve_access_index));

/* Since Linux 6.5. */
extern int bpf_sock_destroy(struct sock_common *sk) __ksym __weak;

/* What the kernel says of a packet and does not show to programs. */
struct sk_buff {
	__u8 ip_summed : 2;
} __attribute__((preserve_access_index));

/* Linux 6.2. */
extern void *bpf_cast_to_kern_ctx(void *obj) __ksym __weak;
extern void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __ksym __weak;

/*
 * The TCP socket at an address, of which KERNEL_READ reads members: each by an instruction where
 * the kernel can check that, else by a call that takes ten times as long.
 */
static __always_inline const struct tcp_sock *readable_tcp(const void *sk)
{
	if (bpf_rdonly_cast)
		return bpf_rdonly_cast(
			sk, bpf_core_type_id_kernel(struct tcp_sock));
	return sk;
}

#define KERNEL_READ(p, member) \
	(bpf_rdonly_cast ? (p)->member : BPF_CORE_READ(p, member))
