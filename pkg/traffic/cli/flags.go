package cli

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/traffic/load"
)

// loadFlags are the flags that say what is sent.
type loadFlags struct {
	spec     load.Spec
	kind     string
	targets  []string
	arrivals string
	sources  []string
	ports    string
	actions  []string
	labels   map[string]string
	name     string
	output   string
	pictures pictures
	noTop    bool
}

func (f *loadFlags) add(cmd *cobra.Command) {
	s, flags := &f.spec, cmd.Flags()
	kinds := make([]string, 0, len(load.Kinds()))
	for _, k := range load.Kinds() {
		kinds = append(kinds, string(k))
	}
	flags.StringVar(&f.kind, "kind", string(load.RR), "operation: "+strings.Join(kinds, ", "))
	flags.BoolVar(&s.Download, "download", false, "for bulk: the server sends and the client counts")
	flags.Float64Var(&s.Rate, "rate", 0, "operations per second in all, in an open loop; without it each connection begins the next operation when one ends")
	flags.StringVar(&f.arrivals, "arrivals", "constant", "when operations of an open loop are due: constant or poisson")
	flags.Uint64Var(&s.Seed, "seed", 1, "seed of poisson arrivals")
	flags.IntVar(&s.Connections, "connections", 0, "maximum of concurrent connections (default 32; for bulk one per sender, for packets 8)")
	flags.IntVar(&s.Senders, "senders", 0, "sending threads (default: one per CPU)")
	flags.BoolVar(&s.Unbound, "unbound", false, "let the kernel move senders between CPUs")
	flags.IntVar(&s.PerSocket, "per-socket", 0, "operations per socket; the next socket is a new choice of backend (default: no limit; for connect and crr 1)")
	flags.IntVar(&s.Request, "request-bytes", 0, "size of a request or datagram in bytes (default 64; for packets 24)")
	flags.IntVar(&s.Response, "response-bytes", 0, "size of a response in bytes (default 64)")
	flags.StringSliceVar(&f.sources, "source", nil, "addresses or prefixes of this machine to send from, in turn (default: the kernel's choice)")
	flags.StringVar(&f.ports, "source-ports", "", "FIRST-LAST of the ports to send from, in turn (default: the kernel's choice)")
	flags.BoolVar(&s.FIN, "fin", false, "close connections with FIN, which leaves TIME_WAIT, instead of a reset")
	flags.DurationVar(&s.Timeout, "timeout", time.Second, "timeout of an operation")
	flags.DurationVar(&s.WarmUp, "warm-up", time.Second, "time before counting begins")
	flags.DurationVar(&s.Duration, "duration", 10*time.Second, "how long to count")
	flags.DurationVar(&s.Interval, "interval", 0, "interval of the time line (default: 1/100 of --duration)")
	flags.StringVar(&s.Path, "path", "/", "for http: path to GET; headgate-bench server answers /?bytes=N with N bytes")
	flags.StringVar(&s.Host, "host", "", "for http: Host header (default: the target)")
	flags.StringVar(&s.BackendHeader, "backend-header", "Headgate-Backend", "for http: header of the answer that names the backend")
	flags.BoolVar(&s.CheckPeer, "check-peer", false, "fail operations on sockets whose peer is not the target, as getpeername() says")
	flags.BoolVar(&s.Unchecked, "unchecked", false, "do not check before the run that targets answer")
	flags.StringArrayVar(&f.actions, "at", nil, "TIME=COMMAND: run a shell command TIME after counting has begun, and record it as an event")
	flags.BoolVar(&f.noTop, "no-ceiling", false, "do not measure the maximum of the generator itself")
	flags.StringToStringVar(&f.labels, "label", nil, "KEY=VALUE to keep with the result")
	flags.StringVar(&f.name, "name", "", "name of the result")
	flags.StringVarP(&f.output, "output", "o", "", "file to write the result to, as JSON")
	f.pictures.add(flags)
}

// addTargets adds the flags that say whom it is sent to.
func (f *loadFlags) addTargets(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&f.targets, "target", nil, "ADDRESS:PORT or NAME:PORT to send to; connections take several in turn")
	cmd.Flags().BoolVar(&f.spec.Outside, "allow-outside", false, "allow targets other than loopback: make sure that you may send there")
}

// load returns what the flags say. Some combinations make no sense before a
// load is looked at as a whole.
func (f *loadFlags) load(cmd *cobra.Command) (load.Spec, []load.Action, error) {
	s := f.spec
	s.Kind, s.Ceiling = load.Kind(f.kind), !f.noTop
	if cmd.Flags().Changed("rate") && s.Rate <= 0 {
		return s, nil, fmt.Errorf("--rate %v: nothing would ever be due; leave --rate out for a closed loop", s.Rate)
	}
	if s.Rate > 0 && s.Kind == load.Bulk {
		return s, nil, fmt.Errorf("--rate %v: bulk goes as fast as it can; leave --rate out", s.Rate)
	}
	if s.Download && s.Kind != load.Bulk {
		return s, nil, fmt.Errorf("--download: it is of --kind bulk, and this is %s", s.Kind)
	}
	switch f.arrivals {
	case "constant":
	case "poisson":
		s.Poisson = true
	default:
		return s, nil, fmt.Errorf("--arrivals %s: they are constant or poisson", lb.Quote(f.arrivals))
	}
	var err error
	if s.Targets, err = parseTargets(cmd.Context(), f.targets); err != nil {
		return s, nil, err
	}
	if s.Sources, err = parseSources(f.sources); err != nil {
		return s, nil, err
	}
	if f.ports != "" {
		if s.FirstPort, s.LastPort, err = parsePorts(f.ports); err != nil {
			return s, nil, err
		}
	}
	actions, err := parseActions(f.actions)
	return s, actions, err
}

func parseSources(texts []string) ([]netip.Prefix, error) {
	var sources []netip.Prefix
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil {
			sources = append(sources, netip.PrefixFrom(a, a.BitLen()))
			continue
		}
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("--source %s: neither an address nor a prefix; write one like 192.0.2.0/24 or 2001:db8::1", lb.Quote(text))
		}
		sources = append(sources, p)
	}
	return sources, nil
}

func parsePorts(text string) (first, last uint16, err error) {
	from, to, found := strings.Cut(text, "-")
	a, errA := strconv.ParseUint(from, 10, 16)
	b, errB := strconv.ParseUint(to, 10, 16)
	if !found || errA != nil || errB != nil || a == 0 || a > b {
		return 0, 0, fmt.Errorf("--source-ports %s: not a range; write one like 20000-29999", lb.Quote(text))
	}
	return uint16(a), uint16(b), nil
}

func parseActions(texts []string) ([]load.Action, error) {
	var actions []load.Action
	for _, text := range texts {
		at, command, found := strings.Cut(text, "=")
		d, err := time.ParseDuration(at)
		if !found || err != nil || d < 0 || command == "" {
			return nil, fmt.Errorf("--at %s: not a time and a command; write them like 3s='ip link set eth0 down'", lb.Quote(text))
		}
		actions = append(actions, load.Action{At: d, Name: command, Do: func(ctx context.Context) (string, error) {
			out, err := exec.CommandContext(ctx, "/bin/sh", "-c", command).CombinedOutput()
			return strings.TrimSpace(string(out)), err
		}})
	}
	return actions, nil
}
