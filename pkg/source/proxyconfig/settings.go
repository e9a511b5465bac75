package proxyconfig

import "strings"

// Setting is something that kube-proxy can be told, by a field of its file, a
// flag, or both, and what becomes of it here.
type Setting struct {
	Field string // path in a KubeProxyConfiguration, "" where only the flag exists
	Flag  string // without dashes, "" where only the field exists
	Does  string // what it does, "" where it has no effect
	Why   string // why it has no effect; beside Does: when it has none
	kind  kind   // of the flag's value
	short string // one-letter form of the flag
}

// key is the name under which values are kept: the field, or else the flag.
func (s Setting) key() string {
	if s.Field != "" {
		return s.Field
	}
	return "--" + s.Flag
}

// Settings returns everything that kube-proxy 1.36 can be told, in the order in
// which its documentation has it. Beneath logging and other sections there may
// be more fields, which share the section's fate.
func Settings() []Setting {
	const (
		atOnce  = "Headgate programs changes as they come"
		local   = "Headgate masquerades no client because of its address, so it need not tell local clients from others"
		marks   = "Headgate needs no packet mark"
		windows = "applies to Windows only"
		noIPVS  = "Headgate uses no IPVS"
		noSNAT  = "Headgate masquerades only where the reply would not come back by itself"
		logs    = "--log-level and --log-format set what is logged"
	)
	return []Setting{
		{Field: "clientConnection.kubeconfig", Flag: "kubeconfig", kind: text, Does: "kubeconfig file that says how to reach the API server (default: the ServiceAccount of the pod)"},
		{Flag: "master", kind: text, Does: "URL of the API server, in place of the one in the kubeconfig; --api-servers has precedence"},
		{Field: "clientConnection.qps", Flag: "kube-api-qps", kind: number, Does: "requests per second to the API server (default 5)"},
		{Field: "clientConnection.burst", Flag: "kube-api-burst", kind: number, Does: "requests to the API server that may exceed --kube-api-qps at once (default 10)"},
		{Field: "clientConnection.contentType", Flag: "kube-api-content-type", kind: text, Why: "Headgate asks for protobuf, and for JSON where a server has none"},
		{Field: "clientConnection.acceptContentTypes", Why: "Headgate asks for protobuf, and for JSON where a server has none"},
		{Flag: "config", Does: "file with this configuration, or with flags of headgate agent"},
		{Flag: "write-config-to", kind: text, Why: "/configz of the metrics address shows the configuration in force"},
		{Flag: "cleanup", Does: "removes Headgate from the kernel, not kube-proxy's rules, and exits"},
		{Flag: "init-only", Does: "does what needs privileges and exits"},
		{Field: "hostnameOverride", Flag: "hostname-override", kind: text, Does: "name of the Node, as kube-proxy spells --node-name (default: the host name in lower case)"},
		{Field: "bindAddress", Flag: "bind-address", kind: text, Does: "primary address of the node in its family, for --nodeport-addresses primary; an IPv6 address makes healthz and metrics listen on IPv6 by default"},
		{Field: "bindAddressHardFail", Flag: "bind-address-hard-fail", kind: boolean, Does: "exit if the healthz or metrics address is taken, instead of trying again"},
		{Field: "healthzBindAddress", Flag: "healthz-bind-address", kind: text, Does: "host:port of /healthz and /livez, \"\" for nowhere (default 0.0.0.0:10256; nowhere with --manifests)"},
		{Flag: "healthz-port", kind: number, Does: "port of /healthz where --healthz-bind-address names none; 0 for nowhere"},
		{Field: "metricsBindAddress", Flag: "metrics-bind-address", kind: text, Does: "host:port of /metrics, /proxyMode and /configz, \"\" for nowhere (default 127.0.0.1:10249; nowhere with --manifests)"},
		{Flag: "metrics-port", kind: number, Does: "port of /metrics where --metrics-bind-address names none; 0 for nowhere"},
		{Field: "enableProfiling", Flag: "profiling", kind: boolean, Does: "serve /debug/pprof/ on the metrics address"},
		{Field: "showHiddenMetricsForVersion", Flag: "show-hidden-metrics-for-version", kind: text, Why: "Headgate has no hidden metrics"},
		{Field: "featureGates", Flag: "feature-gates", kind: text, Why: "Headgate has no feature gates"},
		{Field: "logging.verbosity", Flag: "v", short: "v", kind: number, Does: "log level as kube-proxy counts it: 4 and above is debug, below is info; --log-level has precedence"},
		{Field: "logging.format", Flag: "logging-format", kind: text, Does: "log format as kube-proxy names it: text or json; --log-format has precedence"},
		{Field: "logging.vmodule", Flag: "vmodule", kind: text, Why: logs},
		{Field: "logging.flushFrequency", Flag: "log-flush-frequency", kind: text, Why: "Headgate does not buffer its log"},
		{Field: "logging.options.text.infoBufferSize", Flag: "log-text-info-buffer-size", kind: text, Why: "Headgate does not buffer its log"},
		{Field: "logging.options.text.splitStream", Flag: "log-text-split-stream", kind: boolean, Why: "Headgate logs to stderr"},
		{Field: "logging.options.json.infoBufferSize", Flag: "log-json-info-buffer-size", kind: text, Why: "Headgate does not buffer its log"},
		{Field: "logging.options.json.splitStream", Flag: "log-json-split-stream", kind: boolean, Why: "Headgate logs to stderr"},
		{Field: "logging", Why: logs},
		{Field: "mode", Flag: "proxy-mode", kind: text, Does: "iptables, nftables or ipvs: Headgate balances in the same way in each, takes the defaults of the mode, and in ipvs its scheduler"},
		{Field: "nodePortAddresses", Flag: "nodeport-addresses", kind: list, Does: "prefixes of the node's addresses on which NodePorts answer; also primary, localhost, all (default: all; primary in mode nftables)"},
		{Field: "iptables.localhostNodePorts", Flag: "iptables-localhost-nodeports", kind: boolean, Does: "let NodePorts answer on loopback addresses; --nodeport-loopback has precedence", Why: "applies in mode iptables only; elsewhere name localhost in nodePortAddresses"},
		{Field: "iptables.masqueradeAll", Flag: "masquerade-all", kind: boolean, Why: noSNAT},
		{Field: "iptables.masqueradeBit", Flag: "iptables-masquerade-bit", kind: number, Why: marks},
		{Field: "iptables.syncPeriod", Flag: "iptables-sync-period", kind: duration, Does: "half the time after which a change that is not programmed makes /healthz fail (default 30s)", Why: "applies in mode iptables only"},
		{Field: "iptables.minSyncPeriod", Flag: "iptables-min-sync-period", kind: duration, Why: atOnce},
		{Field: "nftables.masqueradeAll", Why: noSNAT},
		{Field: "nftables.masqueradeBit", Why: marks},
		{Field: "nftables.syncPeriod", Does: "as iptables.syncPeriod", Why: "applies in mode nftables only"},
		{Field: "nftables.minSyncPeriod", Why: atOnce},
		{Field: "ipvs.scheduler", Flag: "ipvs-scheduler", kind: text, Does: "algorithm of Services that name none: rr (default), wrr, lc, wlc, sh, dh, sed, nq; mh is maglev, twos is p2c; --algorithm has precedence", Why: "applies in mode ipvs only"},
		{Field: "ipvs.syncPeriod", Flag: "ipvs-sync-period", kind: duration, Does: "as iptables.syncPeriod", Why: "applies in mode ipvs only"},
		{Field: "ipvs.minSyncPeriod", Flag: "ipvs-min-sync-period", kind: duration, Why: atOnce},
		{Field: "ipvs.excludeCIDRs", Flag: "ipvs-exclude-cidrs", kind: list, Why: noIPVS + ", and removes no rules of others"},
		{Field: "ipvs.strictARP", Flag: "ipvs-strict-arp", kind: boolean, Why: "Headgate gives the node no Service addresses, so the node does not answer ARP for them"},
		{Field: "ipvs.tcpTimeout", Flag: "ipvs-tcp-timeout", kind: duration, Why: noIPVS},
		{Field: "ipvs.tcpFinTimeout", Flag: "ipvs-tcpfin-timeout", kind: duration, Why: noIPVS},
		{Field: "ipvs.udpTimeout", Flag: "ipvs-udp-timeout", kind: duration, Why: noIPVS},
		{Field: "detectLocalMode", Flag: "detect-local-mode", kind: text, Why: local},
		{Field: "detectLocal.bridgeInterface", Flag: "pod-bridge-interface", kind: text, Why: local},
		{Field: "detectLocal.interfaceNamePrefix", Flag: "pod-interface-name-prefix", kind: text, Why: local},
		{Field: "clusterCIDR", Flag: "cluster-cidr", kind: text, Why: local},
		{Field: "oomScoreAdj", Flag: "oom-score-adj", kind: number, Does: "oom_score_adj of the agent, -1000 to 1000 (default: left as it is)"},
		{Field: "conntrack.maxPerCore", Flag: "conntrack-max-per-core", kind: number, Does: "size of the kernel's conntrack table per core, 0 to leave it (default 32768; 0 with --manifests)"},
		{Field: "conntrack.min", Flag: "conntrack-min", kind: number, Does: "minimum size of the kernel's conntrack table; unused if --conntrack-max-per-core is 0 (default 131072)"},
		{Field: "conntrack.tcpEstablishedTimeout", Flag: "conntrack-tcp-timeout-established", kind: duration, Does: "idle timeout of established TCP connections in kernel conntrack (0 leaves it) and of flows (2h4m at least, 0 is a day) (default 24h; 0 with --manifests)"},
		{Field: "conntrack.tcpCloseWaitTimeout", Flag: "conntrack-tcp-timeout-close-wait", kind: duration, Does: "idle timeout of half-closed TCP connections in kernel conntrack, 0 to leave it (default 1h; 0 with --manifests)"},
		{Field: "conntrack.tcpBeLiberal", Flag: "conntrack-tcp-be-liberal", kind: boolean, Does: "let kernel conntrack accept TCP packets outside the window"},
		{Field: "conntrack.udpTimeout", Flag: "conntrack-udp-timeout", kind: duration, Does: "idle timeout of unanswered UDP in kernel conntrack, 0 to leave it"},
		{Field: "conntrack.udpStreamTimeout", Flag: "conntrack-udp-timeout-stream", kind: duration, Does: "idle timeout of answered UDP in kernel conntrack, 0 to leave it"},
		{Field: "configSyncPeriod", Flag: "config-sync-period", kind: duration, Why: "Headgate watches the API server and does not ask again by the clock"},
		{Field: "portRange", Why: "kube-proxy does not use it any more either"},
		{Field: "windowsRunAsService", Why: windows},
		{Field: "winkernel.networkName", Why: windows},
		{Field: "winkernel.sourceVip", Why: windows},
		{Field: "winkernel.enableDSR", Why: windows},
		{Field: "winkernel.rootHnsEndpointName", Why: windows},
		{Field: "winkernel.forwardHealthCheckVip", Why: windows},
	}
}

// whyNot returns why a field has no effect, from its own setting or that of the
// section around it; "" where kube-proxy has no such field.
func whyNot(path string) string {
	for {
		for _, s := range Settings() {
			if s.key() == path {
				return s.Why
			}
		}
		end := strings.LastIndexByte(path, '.')
		if end < 0 {
			return ""
		}
		path = path[:end]
	}
}
