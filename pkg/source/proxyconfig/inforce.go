package proxyconfig

import "time"

// InForce returns what the settings of kube-proxy have come to, by flag. Those that say the
// same as a flag of Headgate's own are left to that one.
func (c Common) InForce() map[string]any {
	nodePorts := []string{}
	if c.NodePorts.Primary {
		nodePorts = append(nodePorts, "primary")
	}
	for _, p := range c.NodePorts.CIDRs {
		nodePorts = append(nodePorts, p.String())
	}
	out := map[string]any{
		"bind-address": c.BindAddress.String(), "bind-address-hard-fail": c.BindHardFail,
		"healthz-bind-address": c.HealthzAddress, "metrics-bind-address": c.MetricsAddress, "profiling": c.Profiling,
		"nodeport-addresses":     nodePorts,
		"iptables-sync-period":   c.SyncPeriod.String(),
		"conntrack-max-per-core": c.Conntrack.MaxPerCore, "conntrack-min": c.Conntrack.Min,
		"conntrack-tcp-be-liberal": c.Conntrack.TCPBeLiberal,
	}
	for flag, d := range map[string]time.Duration{
		"conntrack-tcp-timeout-established": c.Conntrack.TCPEstablishedTimeout,
		"conntrack-tcp-timeout-close-wait":  c.Conntrack.TCPCloseWaitTimeout,
		"conntrack-udp-timeout":             c.Conntrack.UDPTimeout,
		"conntrack-udp-timeout-stream":      c.Conntrack.UDPStreamTimeout,
	} {
		out[flag] = d.String()
	}
	if c.OOMScoreAdj != nil {
		out["oom-score-adj"] = *c.OOMScoreAdj
	}
	return out
}
