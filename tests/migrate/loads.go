package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/pkg/traffic/load"
	"github.com/headgate/headgate/pkg/traffic/result"
)

// asLoads is the argument by which this program is a client, with several loads at once.
const asLoads = "loads"

// namedLoad is a load of a kind that the tables show.
type namedLoad struct {
	Name string
	Spec load.Spec
}

// outcome is what came of one.
type outcome struct {
	Name string
	Run  result.Run
	Err  string
}

// serveLoads runs loads until its input ends, and says what came of them.
func serveLoads(in io.Reader, out io.Writer) error {
	var loads []namedLoad
	decoder := json.NewDecoder(in)
	if err := decoder.Decode(&loads); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	outcomes := make([]outcome, len(loads))
	var running sync.WaitGroup
	for i, l := range loads {
		running.Go(func() {
			run, err := load.Run(ctx, l.Spec, nil)
			outcomes[i] = outcome{Name: l.Name, Run: run}
			if err != nil {
				outcomes[i].Err = err.Error()
			}
		})
	}
	_, _ = io.Copy(io.Discard, in) // it ends when all loads are to end
	cancel()
	running.Wait()
	return json.NewEncoder(out).Encode(outcomes)
}

// Kinds of loads, in the order of the tables. Those that are Local go to the Service of that
// policy, whose clients outside are seen by its backends, and only by those of the node.
var kinds = []string{"new TCP", "short TCP", "held TCP", "UDP", "held UDP", unconnected, "Local new TCP", "Local held TCP", "Local held UDP"}

// unconnected is the kind whose sockets are never connected.
const unconnected = "sendto UDP"

// isConnectedUDP says whether sockets of a kind may be told.
func isConnectedUDP(kind string) bool { return strings.HasSuffix(kind, "UDP") && kind != unconnected }

// loadsOf returns the loads of a place: to the Service whose backends are replaced all the
// time new connections, and sockets that live shorter than a backend drains; to others
// sockets that are held from the beginning to the end.
func loadsOf(rate float64, rolling, held, leaving, local []netip.AddrPort) []namedLoad {
	const shorter = 3 // requests on a socket, each after one on every other socket
	both := append(append([]netip.AddrPort{}, held...), leaving...)
	all := []namedLoad{
		{kinds[0], load.Spec{Kind: load.CRR, Targets: rolling}},
		{kinds[1], load.Spec{Kind: load.RR, Targets: rolling, PerSocket: shorter}},
		{kinds[2], load.Spec{Kind: load.RR, Targets: held}},
		{kinds[3], load.Spec{Kind: load.UDP, Targets: rolling, PerSocket: shorter}},
		{kinds[4], load.Spec{Kind: load.UDP, Targets: both}},
		{kinds[5], load.Spec{Kind: load.SendTo, Targets: rolling}},
		{kinds[6], load.Spec{Kind: load.CRR, Targets: local}},
		{kinds[7], load.Spec{Kind: load.RR, Targets: local}},
		{kinds[8], load.Spec{Kind: load.UDP, Targets: local}},
	}
	for i := range all {
		s := &all[i].Spec
		s.Connections, s.Senders, s.Rate = len(s.Targets), 1, max(rate, float64(len(s.Targets)))
		s.Timeout, s.Duration, s.Interval = 5*time.Second, 10*time.Minute, 500*time.Millisecond
		s.Unbound, s.Unchecked, s.Outside = true, true, true
	}
	return all
}

// place is where loads come from.
type place struct {
	name    string
	node    int // that they come from or ask
	outside bool
}

// client is a process with the loads of a place.
type client struct {
	place
	cmd *exec.Cmd
	in  io.WriteCloser
	out io.ReadCloser
}

// startClient starts the loads in a machine and the cgroup of a node.
func (w *world) startClient(p place, machine, cgroup string, loads []namedLoad) (*client, error) {
	c := &client{place: p, cmd: exec.Command("/proc/self/exe", asLoads)}
	c.cmd.Stderr = os.Stderr
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if c.out, err = c.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	w.cgroups[cgroup].Adopt(c.cmd)
	if err := w.namespace(machine).Start(c.cmd); err != nil {
		return nil, err
	}
	return c, json.NewEncoder(c.in).Encode(loads)
}

// end ends the loads and returns what came of them.
func (c *client) end() (all []outcome, err error) {
	c.in.Close()
	if err := json.NewDecoder(c.out).Decode(&all); err != nil {
		return nil, fmt.Errorf("loads of %s: %w", c.name, err)
	}
	return all, c.cmd.Wait()
}
