package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/pkg/source/proxyconfig"
)

// readConfig sets flags from a file, those apart that the command line has set.
// The file is a map of flags, or kube-proxy's own configuration.
func (o *agentOptions) readConfig(flags *pflag.FlagSet) error {
	if o.configFile == "" {
		return nil
	}
	text, err := os.ReadFile(o.configFile)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	var kind struct {
		Kind string `yaml:"kind"`
	}
	if yaml.Unmarshal(text, &kind) == nil && kind.Kind != "" {
		return o.readProxyConfig(text, flags)
	}
	return readFlags(o.configFile, text, flags)
}

// readFlags sets flags from YAML, by name.
func readFlags(file string, text []byte, flags *pflag.FlagSet) error {
	var values map[string]yaml.Node
	err := yaml.Unmarshal(text, &values)
	var mistyped *yaml.TypeError
	if errors.As(err, &mistyped) {
		return fmt.Errorf("--config %s: not a map of flags, write lines such as node-name: node-a", file)
	}
	if err != nil {
		return fmt.Errorf("--config %s: %w", file, err)
	}
	for name, value := range values {
		flag := flags.Lookup(name)
		if flag == nil || name == "config" {
			return fmt.Errorf("--config %s: line %d: no flag is named %q; headgate agent --help lists them", file, value.Line, name)
		}
		if value.Kind != yaml.ScalarNode {
			return fmt.Errorf("--config %s: line %d: %s takes a single value", file, value.Line, name)
		}
		if flag.Changed {
			continue
		}
		if err := flags.Set(name, value.Value); err != nil {
			return fmt.Errorf("--config %s: line %d: %w", file, value.Line, explainFlag(err))
		}
	}
	return nil
}

// readProxyConfig takes over what applies of a KubeProxyConfiguration, and
// notes what does not.
func (o *agentOptions) readProxyConfig(text []byte, flags *pflag.FlagSet) error {
	c, warnings, err := proxyconfig.Parse(o.configFile, text)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		o.notApplicable = append(o.notApplicable, w.Error())
	}
	set := func(flag string, take func()) {
		if !flags.Changed(flag) {
			take()
		}
	}
	set("kubeconfig", func() { o.Kube.Kubeconfig = c.Client.Kubeconfig })
	set("kube-api-qps", func() { o.Kube.QPS = c.Client.QPS })
	set("kube-api-burst", func() { o.Kube.Burst = c.Client.Burst })
	set("node-name", func() { o.NodeName = orDefault(c.NodeName, o.NodeName) })
	set("healthz-bind-address", func() { o.HealthzAddress = c.HealthzAddress })
	set("metrics-bind-address", func() { o.MetricsAddress = c.MetricsAddress })
	set("bind-address-hard-fail", func() { o.BindHardFail = c.BindHardFail })
	set("profiling", func() { o.Profiling = c.Profiling })
	set("nodeport-loopback", func() { o.NodePortLoopback = c.NodePortLoopback })
	o.fromKubeProxy, o.KernelConntrack = true, c.Conntrack
	set("nodeport-addresses", func() { o.NodePorts = c.NodePorts })
	return nil
}
