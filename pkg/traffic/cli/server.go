package cli

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/traffic/serve"
)

const serverLong = `Server answers what headgate-bench client sends, over TCP, UDP and HTTP on the
same ports, and names itself in every answer. On Ctrl-C it prints what it
received, and ends.

--delay, --drop-every and --reset-every make the server slow or faulty, to test a
measurement or a load balancer.`

func newServer(e *env) *cobra.Command {
	var listen []string
	var name string
	var options serve.Options
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Answer what headgate-bench client sends",
		Long:  serverLong,
		Args:  command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			endpoints, err := parseEndpoints(listen, name)
			if err != nil {
				return err
			}
			if f := options.Faults; f.Delay < 0 || f.DropEvery < 0 || f.ResetEvery < 0 {
				return fmt.Errorf("--delay, --drop-every and --reset-every cannot be negative")
			}
			server, err := serve.Start(endpoints, options)
			if err != nil {
				return err
			}
			for _, endpoint := range endpoints {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s listens on %s\n", endpoint.Name, endpoint.Addr)
			}
			<-cmd.Context().Done()
			stats := server.Stats()
			if err := server.Close(); err != nil {
				return err
			}
			return e.Print(cmd.OutOrStdout(), statsTable(endpoints, stats))
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&listen, "listen", []string{"127.0.0.1:8080"}, "ADDRESS:PORT to listen on, or NAME=ADDRESS:PORT to have another name there")
	flags.StringVar(&name, "name", "", "name of the server in its answers (default: the host name)")
	flags.IntVar(&options.Loops, "threads", 0, "serving threads (default: one per CPU)")
	flags.DurationVar(&options.Faults.Delay, "delay", 0, "delay of each answer")
	flags.IntVar(&options.Faults.DropEvery, "drop-every", 0, "ignore each N-th request (0: none)")
	flags.IntVar(&options.Faults.ResetEvery, "reset-every", 0, "reset the connection at each N-th request over TCP (0: never)")
	return cmd
}

func parseEndpoints(listen []string, name string) ([]serve.Endpoint, error) {
	if name == "" {
		var err error
		if name, err = os.Hostname(); err != nil {
			return nil, fmt.Errorf("find the name of the host: %s; give one with --name", err)
		}
	}
	var endpoints []serve.Endpoint
	for _, text := range listen {
		own, addr, found := strings.Cut(text, "=")
		if !found {
			own, addr = name, text
		}
		a, err := netip.ParseAddrPort(addr)
		if err != nil || a.Port() == 0 {
			return nil, fmt.Errorf("--listen %s: not an address and a port; write one like 127.0.0.1:8080 or [::]:8080", lb.Quote(text))
		}
		endpoints = append(endpoints, serve.Endpoint{Name: own, Addr: a})
	}
	if len(endpoints) == 0 {
		return nil, fmt.Errorf("--listen is empty: name at least one ADDRESS:PORT")
	}
	return endpoints, nil
}

// serverStats is what a server has seen, as JSON.
type serverStats struct {
	Name        string     `json:"name"`
	Connections uint64     `json:"connections"`
	Requests    uint64     `json:"requests"`
	Datagrams   uint64     `json:"one_way_datagrams"`
	Bytes       uint64     `json:"bulk_bytes"`
	First       *time.Time `json:"first,omitempty"`
	Last        *time.Time `json:"last,omitempty"`
}

func statsTable(endpoints []serve.Endpoint, stats map[string]serve.Stats) command.Table {
	t := command.Table{Header: []string{"NAME", "CONNECTIONS", "REQUESTS", "ONE-WAY", "BULK BYTES"}}
	values := []serverStats{}
	shown := make(map[string]bool)
	for _, endpoint := range endpoints {
		if shown[endpoint.Name] {
			continue
		}
		shown[endpoint.Name] = true
		s := stats[endpoint.Name]
		t.Rows = append(t.Rows, []string{endpoint.Name, fmt.Sprint(s.Connections), fmt.Sprint(s.Requests), fmt.Sprint(s.Datagrams), fmt.Sprint(s.Bytes)})
		v := serverStats{Name: endpoint.Name, Connections: s.Connections, Requests: s.Requests, Datagrams: s.Datagrams, Bytes: s.Bytes}
		if !s.First.IsZero() {
			v.First, v.Last = &s.First, &s.Last
		}
		values = append(values, v)
	}
	t.Value = values
	return t
}
