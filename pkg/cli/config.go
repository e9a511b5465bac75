package cli

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

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
	var top yaml.Node
	var values map[string]yaml.Node
	_ = yaml.Unmarshal(text, &top) // the next one returns the same error
	err := yaml.Unmarshal(text, &values)
	var mistyped *yaml.TypeError
	switch {
	case errors.As(err, &mistyped) && top.Content[0].Kind != yaml.MappingNode:
		return fmt.Errorf("--config %s: not a map of flags, write lines such as node-name: node-a", file)
	case mistyped != nil: // a key twice
		return fmt.Errorf("--config %s: %s", file, strings.Join(mistyped.Errors, "; "))
	}
	if err != nil {
		return fmt.Errorf("--config %s: %w", file, err)
	}
	byLine := func(a, b string) int { return values[a].Line - values[b].Line }
	for _, name := range slices.SortedFunc(maps.Keys(values), byLine) {
		flag, value := flags.Lookup(name), values[name]
		if flag == nil || name == "config" {
			return fmt.Errorf("--config %s: line %d: no flag is named %s; headgate agent --help lists them", file, value.Line, lb.Quote(name))
		}
		text, ok := flagText(flag, value)
		if !ok {
			return fmt.Errorf("--config %s: line %d: %s takes a single value", file, value.Line, name)
		}
		if flag.Changed {
			continue
		}
		if err := flags.Set(name, text); err != nil {
			return fmt.Errorf("--config %s: line %d: %w", file, value.Line, command.ExplainFlag(err))
		}
	}
	return nil
}

// flagText returns a value as the command line has it. Flags that take several
// values separated by commas take a list, too.
func flagText(flag *pflag.Flag, value yaml.Node) (text string, ok bool) {
	if value.Kind == yaml.ScalarNode {
		return value.Value, true
	}
	_, several := flag.Value.(pflag.SliceValue)
	if !several || value.Kind != yaml.SequenceNode {
		return "", false
	}
	items := make([]string, len(value.Content))
	for i, item := range value.Content {
		if item.Kind != yaml.ScalarNode {
			return "", false
		}
		items[i] = item.Value
	}
	return strings.Join(items, ","), true
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
