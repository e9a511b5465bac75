package proxyconfig

import "strings"

// Setting is something that kube-proxy can be told, by a field of its file, a
// flag, or both, and what becomes of it here.
type Setting struct {
	Field string // path in a KubeProxyConfiguration, "" where only the flag exists
	Flag  string // without dashes, "" where only the field exists
	Does  string // what it does, "" where it has no effect: a line for the help, and a second one for the page
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
		{Field: "clientConnection.kubeconfig", Flag: "kubeconfig", kind: text, Does: "kubeconfig file (default: the ServiceAccount)\nit says how to reach the API server"},
		{Flag: "master", kind: text, Does: "URL of the API server\nin place of the one in the kubeconfig; --api-servers has precedence"},
		{Field: "clientConnection.qps", Flag: "kube-api-qps", kind: number, Does: "API server requests per second (default 5)"},
		{Field: "clientConnection.burst", Flag: "kube-api-burst", kind: number, Does: "requests at once beyond the rate (default 10)\nthe rate is --kube-api-qps"},
		{Field: "clientConnection.contentType", Flag: "kube-api-content-type", kind: text, Why: "Headgate asks for protobuf, and for JSON where a server has none"},
		{Field: "clientConnection.acceptContentTypes", Why: "Headgate asks for protobuf, and for JSON where a server has none"},
		{Flag: "config", Does: "file with this configuration, or with flags of headgate agent"},
		{Flag: "write-config-to", kind: text, Why: "/configz of the metrics address shows the configuration in force"},
		{Flag: "cleanup", Does: "removes Headgate from the kernel, not kube-proxy's rules, and exits"},
		{Flag: "init-only", Does: "does what needs privileges and exits"},
		{Field: "hostnameOverride", Flag: "hostname-override", kind: text, Does: "name of the Node, as --node-name\ndefault: the host name in lower case"},
		{Field: "bindAddress", Flag: "bind-address", kind: text, Does: "primary address of the node in its family\nfor --nodeport-addresses primary; an IPv6 address makes healthz and metrics listen on IPv6 by default"},
		{Field: "bindAddressHardFail", Flag: "bind-address-hard-fail", kind: boolean, Does: "exit if the healthz or metrics address is taken\ninstead of trying again"},
		{Field: "healthzBindAddress", Flag: "healthz-bind-address", kind: text, Does: "host:port of /healthz (default 0.0.0.0:10256)\nand of /livez; \"\" is nowhere, as by default with --manifests"},
		{Flag: "healthz-port", kind: number, Does: "port of /healthz, 0 for nowhere\nif --healthz-bind-address names none"},
		{Field: "metricsBindAddress", Flag: "metrics-bind-address", kind: text, Does: "host:port of /metrics (default 127.0.0.1:10249)\nand of /proxyMode and /configz; \"\" is nowhere, as by default with --manifests"},
		{Flag: "metrics-port", kind: number, Does: "port of /metrics, 0 for nowhere\nif --metrics-bind-address names none"},
		{Field: "enableProfiling", Flag: "profiling", kind: boolean, Does: "serve /debug/pprof/ on the metrics address"},
		{Field: "showHiddenMetricsForVersion", Flag: "show-hidden-metrics-for-version", kind: text, Why: "Headgate has no hidden metrics"},
		{Field: "featureGates", Flag: "feature-gates", kind: text, Why: "Headgate has no feature gates"},
		{Field: "logging.verbosity", Flag: "v", short: "v", kind: number, Does: "log level of kube-proxy: 4 and above is debug\nbelow is info; --log-level has precedence"},
		{Field: "logging.format", Flag: "logging-format", kind: text, Does: "log format: text or json\n--log-format has precedence"},
		{Field: "logging.vmodule", Flag: "vmodule", kind: text, Why: logs},
		{Field: "logging.flushFrequency", Flag: "log-flush-frequency", kind: text, Why: "Headgate does not buffer its log"},
		{Field: "logging.options.text.infoBufferSize", Flag: "log-text-info-buffer-size", kind: text, Why: "Headgate does not buffer its log"},
		{Field: "logging.options.text.splitStream", Flag: "log-text-split-stream", kind: boolean, Why: "Headgate logs to stderr"},
		{Field: "logging.options.json.infoBufferSize", Flag: "log-json-info-buffer-size", kind: text, Why: "Headgate does not buffer its log"},
		{Field: "logging.options.json.splitStream", Flag: "log-json-split-stream", kind: boolean, Why: "Headgate logs to stderr"},
		{Field: "logging", Why: logs},
		{Field: "mode", Flag: "proxy-mode", kind: text, Does: "iptables, nftables or ipvs, for their defaults\nHeadgate balances in the same way in each; in ipvs it takes the scheduler, too"},
		{Field: "nodePortAddresses", Flag: "nodeport-addresses", kind: list, Does: "prefixes where NodePorts answer (default: all)\nprefixes of addresses of the node; also primary, localhost, all; the default is primary in mode nftables"},
		{Field: "iptables.localhostNodePorts", Flag: "iptables-localhost-nodeports", kind: boolean, Does: "let NodePorts answer on loopback addresses\n--nodeport-loopback has precedence", Why: "applies in mode iptables only; elsewhere name localhost in nodePortAddresses"},
		{Field: "iptables.masqueradeAll", Flag: "masquerade-all", kind: boolean, Why: noSNAT},
		{Field: "iptables.masqueradeBit", Flag: "iptables-masquerade-bit", kind: number, Why: marks},
		{Field: "iptables.syncPeriod", Flag: "iptables-sync-period", kind: duration, Does: "/healthz fails after twice this (default 30s)\nif a change is not programmed until then", Why: "applies in mode iptables only"},
		{Field: "iptables.minSyncPeriod", Flag: "iptables-min-sync-period", kind: duration, Why: atOnce},
		{Field: "nftables.masqueradeAll", Why: noSNAT},
		{Field: "nftables.masqueradeBit", Why: marks},
		{Field: "nftables.syncPeriod", Does: "as iptables.syncPeriod", Why: "applies in mode nftables only"},
		{Field: "nftables.minSyncPeriod", Why: atOnce},
		{Field: "ipvs.scheduler", Flag: "ipvs-scheduler", kind: text, Does: "algorithm if Services name none (default rr)\nrr, wrr, lc, wlc, sh, dh, sed, nq; mh is maglev, twos is p2c; --algorithm has precedence", Why: "applies in mode ipvs only"},
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
		{Field: "oomScoreAdj", Flag: "oom-score-adj", kind: number, Does: "oom_score_adj of the agent, -1000 to 1000\ndefault: left as it is"},
		{Field: "conntrack.maxPerCore", Flag: "conntrack-max-per-core", kind: number, Does: "conntrack entries per core (default 32768)\nof the kernel's table; 0 leaves it, as by default with --manifests"},
		{Field: "conntrack.min", Flag: "conntrack-min", kind: number, Does: "least conntrack entries (default 131072)\nof the kernel's table; unused if --conntrack-max-per-core is 0"},
		{Field: "conntrack.tcpEstablishedTimeout", Flag: "conntrack-tcp-timeout-established", kind: duration, Does: "idle timeout of established TCP (default 24h)\nin kernel conntrack (0 leaves it, as by default with --manifests) and of flows (2h4m at least, 0 is a day)"},
		{Field: "conntrack.tcpCloseWaitTimeout", Flag: "conntrack-tcp-timeout-close-wait", kind: duration, Does: "idle timeout of half-closed TCP (default 1h)\nin kernel conntrack; 0 leaves it, as by default with --manifests"},
		{Field: "conntrack.tcpBeLiberal", Flag: "conntrack-tcp-be-liberal", kind: boolean, Does: "accept TCP outside the window in conntrack"},
		{Field: "conntrack.udpTimeout", Flag: "conntrack-udp-timeout", kind: duration, Does: "idle timeout of unanswered UDP in conntrack\n0 leaves it"},
		{Field: "conntrack.udpStreamTimeout", Flag: "conntrack-udp-timeout-stream", kind: duration, Does: "idle timeout of answered UDP in conntrack\n0 leaves it"},
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
