package cli

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v2"

	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/lb"
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
		o.proxyFile = text
		return nil
	}
	return readFlags(o.configFile, text, flags)
}

// readFlags sets flags from YAML, by name.
func readFlags(file string, text []byte, flags *pflag.FlagSet) error {
	var values map[string]flagValue
	err := yaml.UnmarshalStrict(text, &values)
	var mistyped *yaml.TypeError
	switch {
	case errors.As(err, &mistyped) && values == nil:
		return fmt.Errorf("--config %s: not a map of flags, write lines such as node-name: node-a", file)
	case mistyped != nil: // a key twice
		return fmt.Errorf("--config %s: %s", file, strings.Join(mistyped.Errors, "; "))
	case err != nil:
		return fmt.Errorf("--config %s: %w", file, err)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		flag, value := flags.Lookup(name), values[name]
		if flag == nil || name == "config" {
			return fmt.Errorf("--config %s: no flag is named %s; headgate agent --help lists them", file, lb.Quote(name))
		}
		text, ok := value.of(flag)
		if !ok {
			return fmt.Errorf("--config %s: %s takes a single value", file, name)
		}
		if flag.Changed {
			continue
		}
		if err := flags.Set(name, text); err != nil {
			return fmt.Errorf("--config %s: %w", file, command.ExplainFlag(err))
		}
	}
	return nil
}

// flagValue is what a file says of a flag, as it is written there.
type flagValue struct {
	items            []string
	several, neither bool // a list; a map
}

// UnmarshalYAML takes a value or a list of values.
func (v *flagValue) UnmarshalYAML(unmarshal func(any) error) error {
	var one string
	if unmarshal(&one) == nil {
		v.items = []string{one}
		return nil
	}
	v.several, v.neither = true, unmarshal(&v.items) != nil
	return nil
}

// of returns a value as the command line has it. Flags that take several values separated by
// commas take a list, too.
func (v flagValue) of(flag *pflag.Flag) (text string, ok bool) {
	_, several := flag.Value.(pflag.SliceValue)
	return strings.Join(v.items, ","), !v.neither && (several || !v.several)
}

// takeOver sets what kube-proxy's configuration and flags say. Headgate's own flags
// have precedence where changed says that they were set.
func (o *agentOptions) takeOver(changed func(flag string) bool) error {
	c, warnings, err := proxyconfig.Parse(proxyconfig.Input{
		File: o.configFile, Data: o.proxyFile, Flags: &o.proxyFlags,
		Standalone: o.Manifests != "" && o.proxyFile == nil,
	})
	if err != nil {
		return err
	}
	for _, w := range warnings {
		o.withoutEffect = append(o.withoutEffect, w.Error())
	}
	o.Kube.Kubeconfig, o.Kube.QPS, o.Kube.Burst = c.Client.Kubeconfig, c.Client.QPS, c.Client.Burst
	if len(o.Kube.Servers) == 0 && c.Client.Server != "" {
		o.Kube.Servers = []string{c.Client.Server}
	}
	if err := o.takeName(c.NodeName, changed("node-name")); err != nil {
		return err
	}
	o.Common = c.Common
	if !changed("nodeport-loopback") {
		o.NodePortLoopback = c.NodePortLoopback
	}
	for _, own := range []struct {
		flag  string
		value *string
		given string
	}{{"algorithm", &o.Algorithm, c.Algorithm}, {"log-level", &o.logLevel, c.LogLevel}, {"log-format", &o.logFormat, c.LogFormat}} {
		if !changed(own.flag) && own.given != "" {
			*own.value = own.given
		}
	}
	return nil
}

// takeName sets the name of the node: --node-name, what kube-proxy is told, the
// environment, the host.
func (o *agentOptions) takeName(override string, byFlag bool) error {
	if override != "" && !byFlag {
		o.NodeName = override
	}
	if o.NodeName != "" {
		return proxyconfig.CheckNodeName("--node-name", o.NodeName)
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("no node name: %w; say which Node this is with --node-name", err)
	}
	o.NodeName = strings.ToLower(host)
	return nil
}
