// Package preflight finds what of a node, its kernel and its cluster does not go together
// with Headgate, before anything is installed. It asks only: nothing is changed.
package preflight

// Level says what a finding means for Headgate.
type Level string

// The levels.
const (
	OK      Level = "ok"
	Warning Level = "warning" // Headgate works, and something is not as it could be
	Failure Level = "failure" // Headgate would not start, or Services would not work
)

// kind is a kind of finding that is not ok.
type kind int

// The kinds of findings.
const (
	kernelOld kind = iota
	realtimeUnlocked
	privilegesMissing
	namespacesHidden
	cgroupMissing
	cgroupTaken
	bpfMissing
	programsRefused
	devicesByFilters
	failuresBySockOps
	socketsByDiag
	noDevices
	deviceNotChosen
	foreignSockets
	foreignPackets
	kubeProxyRuns
	staleRules
	lastNAT
	portTaken
	metricsTaken
	portShared
	localClusterIP
	meshHere
	conntrackFull
	filteredPaths
	hashKeyMissing
	noSource
	configWrong
	serverAway
	rightNeeded
	rightMissing
	notKnown
)

// Kind is what is said of a kind of finding, whatever was found. Docs are made of it.
type Kind struct {
	Name   string // the check, and what it found
	Level  Level
	Means  string // for docs: a sentence
	Remedy string // an imperative phrase; "" where what was found says it
}

// kinds says it of each. docs/check.md has the same as a table.
var kinds = [...]Kind{
	kernelOld: {"kernel-old", Failure, "The kernel does not load the programs.",
		"boot Linux 6.1 or newer"},
	realtimeUnlocked: {"realtime-unlocked", Failure, "On this kernel with PREEMPT_RT, programs of one CPU interrupt each other and share memory, so packets go astray. Kernels before Linux 6.18 have a lock against that.",
		"boot a kernel with CONFIG_PREEMPT_RT_NEEDS_BH_LOCK=y, or one without PREEMPT_RT"},
	privilegesMissing: {"privileges-missing", Failure, "This process may not load programs. What needs that was not looked at.",
		"run it as root; in a container as deploy/ has it, with SYS_ADMIN and SYS_PTRACE at least, and NET_ADMIN before Linux 6.6"},
	namespacesHidden: {"namespaces-hidden", Warning, "The agent does not find the network namespaces of pods. TCP clients there are not told of lost backends. Connected UDP sockets there keep them.",
		"add the capability SYS_PTRACE"},
	cgroupMissing: {"cgroup-missing", Failure, "There is no cgroup2 directory whose sockets can be balanced.",
		"mount -t cgroup2 none /sys/fs/cgroup, or name a directory in a cgroup2 file system with --cgroup"},
	cgroupTaken: {"cgroup-taken", Failure, "A program of another owner is attached to the cgroup so that no other can be.",
		"detach that program (bpftool cgroup detach), or have its owner attach it with BPF_F_ALLOW_MULTI"},
	bpfMissing: {"bpf-missing", Failure, "There is no BPF file system where programs and maps can be pinned.",
		"mount -t bpf bpf /sys/fs/bpf on the node, have a privileged agent do it (privileged: true in the chart, deploy/overlays/privileged), or name a directory in a BPF file system with --bpf-root"},
	programsRefused: {"programs-refused", Failure, "The kernel does not load the programs, for the reason that stands in the line.",
		"boot a kernel with CONFIG_BPF_SYSCALL, CONFIG_CGROUP_BPF, CONFIG_DEBUG_INFO_BTF and CONFIG_BPF_JIT, 6.1 or newer"},
	devicesByFilters: {"devices-by-filters", Warning, "The kernel has no tcx. Filters do the same; another process that removes the qdisc clsact detaches them until the agent attaches them again.",
		"boot Linux 6.6 or newer, or leave it so"},
	failuresBySockOps: {"failures-by-sock-ops", Warning, "Programs at tracepoints are refused. Failed connections are noticed at a higher cost of each connection.",
		"boot without lockdown=confidentiality and with CONFIG_BPF_EVENTS, or leave it so"},
	socketsByDiag: {"sockets-by-diag", Warning, "The kernel cannot destroy sockets from BPF. TCP sockets of lost backends, and UDP sockets that cannot connect again, are destroyed through INET_DIAG, if the kernel has CONFIG_INET_DIAG_DESTROY and the agent NET_ADMIN.",
		"boot Linux 6.5 or newer, or add the capability NET_ADMIN"},
	noDevices: {"devices-none", Warning, "No device leads to others, so packets from outside the node are not balanced.",
		"name devices with --devices, or add a route with a gateway"},
	deviceNotChosen: {"devices-not-chosen", Warning, "Others may reach the node on this device, and packets that come by it are not balanced: clients behind it reach no NodePort, load-balancer IP or external IP by it.",
		"name all devices on which clients reach the node with --devices, or leave it so if no client is behind this one"},
	foreignSockets: {"programs-at-sockets", Warning, "Programs of another owner run at the hooks at which Headgate translates Service addresses. If they translate them too, the one that runs first decides.",
		"switch off the replacement of kube-proxy in what owns them"},
	foreignPackets: {"programs-at-packets", Warning, "Programs of another owner see packets on a device at which Headgate balances them. One that comes first keeps packets of Services from Headgate if it translates, redirects, drops or passes (TCX_PASS) them.",
		"see that their owner leaves the addresses of Services alone"},
	kubeProxyRuns: {"kube-proxy-runs", Warning, "Both work side by side. Connections that are made through kube-proxy stay with its rules until they end.",
		"take kube-proxy away once Headgate serves: headgate migrate run, see docs/migrate.md"},
	staleRules: {"kube-proxy-rules-stale", Warning, "Rules that kube-proxy wrote are left and no kube-proxy of that mode keeps them: they send connections that pass Headgate by to backends that may be gone.",
		"run kube-proxy --cleanup from the same image, privileged and in the node's network, or reboot the node"},
	lastNAT: {"kube-proxy-last-nat", Warning, "kube-proxy's table is the only one that translates addresses on this node. When it is removed the kernel ends translation, and with it the connections that were made through kube-proxy.",
		"wait with kube-proxy --cleanup until these connections have ended"},
	portTaken: {"port-taken", Failure, "Another process listens where the agent answers health checks: load balancers and the kubelet would ask that process.",
		"end that process, or choose another address with the flag that stands in the line"},
	metricsTaken: {"metrics-port-taken", Warning, "Another process listens where the agent answers for metrics. The agent goes on without, and tries again four times a second.",
		"end that process, or choose another address with the flag that stands in the line"},
	portShared: {"port-of-kube-proxy", Warning, "kube-proxy listens where the agent answers. The agent tries again four times a second, and has the port once kube-proxy has ended; until then kube-proxy answers whoever asks there; `headgate ready` asks the agent itself.",
		"leave it so, or choose another address with the flag that stands in the line for as long as both run"},
	localClusterIP: {"cluster-ip-local", Warning, "The ClusterIP of a Service is an address of this node, as with NodeLocal DNSCache. Headgate balances it like any other: sockets go to the Service's endpoints, past what listens here.",
		"have pods ask the cache by its own address, such as 169.254.20.10 (clusterDNS of the kubelet)"},
	meshHere: {"mesh", Warning, "Proxies of a service mesh run here. A mesh that redirects packets by the address of a Service does not see it where sockets are told backends.",
		"annotate the pods of the mesh with headgate.dev/socket-balancing: \"off\" and set --pod-devices=marked"},
	conntrackFull: {"conntrack-full", Warning, "The kernel's table of connections is more than three quarters full; beyond it the kernel drops packets of new connections.",
		"raise net.netfilter.nf_conntrack_max, or --conntrack-min and --conntrack-max-per-core"},
	filteredPaths: {"rp-filter", Warning, "A device on which packets are balanced has no address of its own, so answers of backends come in by another device, and the kernel's filter by the reverse path drops them.",
		"set net.ipv4.conf.all.rp_filter and that of the device to 0, or give the device an address"},
	noSource: {"source-none", Warning, "It was not said where Services come from, so that was not looked at.",
		"name a cluster with --kubeconfig or --api-servers, or a directory of YAML with --manifests"},
	hashKeyMissing: {"hash-key-missing", Failure, "The agent cannot use the file of `--hash-key-file` or `--dsr-key-file`, so it ends when it starts.",
		"name a file with at least 16 random bytes, the same on all nodes, or with one or two keys for `--dsr-key-file`, a line each; in the DaemonSet, make the Secret headgate-hash-key with the key `key`"},
	configWrong: {"source-wrong", Failure, "What is said of the cluster or the directory cannot be used, for the reason that stands in the line.",
		"mend it, or name another one"},
	serverAway: {"api-server", Failure, "An API server cannot be used, for the reason that stands in the line.",
		""},
	rightNeeded: {"rights-missing", Failure, "Without these rights no Service is balanced.",
		"bind the ClusterRole headgate to the agent's ServiceAccount"},
	rightMissing: {"rights-fewer", Warning, "Without these rights the agent goes on: it tells no events, knows no zone of its node, or refuses no unassigned addresses.",
		"bind the ClusterRole headgate of the same version to the agent's ServiceAccount"},
	notKnown: {"not-known", Warning, "Something could not be read, so it is not known.",
		"run it as root, in the node's network and with its processes in view (hostNetwork, hostPID)"},
}

// Kinds returns what can be found that is not ok.
func Kinds() []Kind { return kinds[:] }
