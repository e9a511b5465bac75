package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/pkg/agent"
	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/plan"
)

// defaultLimits keep a mistake in the input from eating the machine's memory.
var defaultLimits = plan.Sizes{Frontends: 1 << 20, Slots: 1 << 25, Backends: 1 << 22, Services: 1 << 20}

func newAgent(e *env) *cobra.Command {
	cfg := agent.Config{Limits: defaultLimits}
	var logLevel, logFormat, configFile string
	cmd := &cobra.Command{
		Use:   "agent --manifests DIR --node-name NAME",
		Short: "Balance the Services of a directory of Kubernetes YAML",
		Long: `Watches a directory of Kubernetes YAML or JSON (Service, EndpointSlice, Node) and
keeps the kernel in line with it. What it has programmed goes on working when it
ends; headgate cleanup removes it.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := readConfig(configFile, cmd.Flags()); err != nil {
				return err
			}
			cfg.BPFRoot, cfg.Version = e.bpfRoot, e.version
			if err := cfg.Validate(); err != nil {
				return err
			}
			log, err := newLogger(logLevel, logFormat)
			if err != nil {
				return err
			}
			return agent.Run(cmd.Context(), cfg, log)
		},
	}
	f := cmd.Flags()
	f.StringVar(&configFile, "config", "", "YAML file that sets any of these flags by name; the command line has precedence")
	f.StringVar(&cfg.Manifests, "manifests", "", "directory of Kubernetes YAML or JSON to watch")
	f.StringVar(&cfg.NodeName, "node-name", os.Getenv("NODE_NAME"), "name of this Node (default: $NODE_NAME)")
	f.StringVar(&cfg.Cgroup, "cgroup", "", "cgroup2 directory whose processes are balanced (default: the root, wherever it is mounted)")
	f.BoolVar(&cfg.NodePortLoopback, "nodeport-loopback", true, "let NodePorts answer on 127.0.0.1 and ::1 to processes in the node's network namespace")
	f.StringSliceVar(&cfg.Devices, "devices", nil, "names or patterns of the devices on which others reach the node (default: those with a default route, and tunnels)")
	f.Uint32Var(&cfg.Promises, "promises", datapath.DefaultPromises, "sockets whose promise is kept in the fast map, 64 bytes each; a power of two")
	f.Uint32Var(&cfg.Limits.Frontends, "max-frontends", cfg.Limits.Frontends, "entries that the frontends map grows to at most (0: no limit)")
	f.Uint32Var(&cfg.Limits.Slots, "max-slots", cfg.Limits.Slots, "slots that the slots map grows to at most (0: no limit)")
	f.Uint32Var(&cfg.Limits.Backends, "max-backends", cfg.Limits.Backends, "entries that the backends map grows to at most (0: no limit)")
	f.Uint32Var(&cfg.Limits.Services, "max-services", cfg.Limits.Services, "entries that the services map grows to at most (0: no limit)")
	f.StringVar(&logLevel, "log-level", "info", "least severe level that is logged: debug, info, warn, error")
	f.StringVar(&logFormat, "log-format", "console", "format of log lines: console or json")
	return cmd
}

// readConfig sets flags from a YAML file, those apart that the command line
// has set.
func readConfig(file string, flags *pflag.FlagSet) error {
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	var values map[string]yaml.Node
	err = yaml.Unmarshal(text, &values)
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

// newLogger returns a logger to stderr.
func newLogger(level, format string) (*zap.Logger, error) {
	l, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("--log-level %q: write debug, info, warn or error", level)
	}
	cfg := zap.NewProductionConfig()
	cfg.Sampling = nil
	cfg.DisableStacktrace, cfg.DisableCaller = true, true
	cfg.Level = zap.NewAtomicLevelAt(l)
	cfg.EncoderConfig.EncodeTime = zapcore.ISO8601TimeEncoder
	switch format {
	case "json":
	case "console":
		cfg.Encoding = format
	default:
		return nil, fmt.Errorf("--log-format %q: write console or json", format)
	}
	return cfg.Build()
}
