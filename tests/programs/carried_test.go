package programs

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// external is the path that node-a carries, to the server on node-b.
var external = path{name: "external", machine: "outside", external: true}

// carriers are proxies on two nodes, of which node-a carries to node-b.
var carriers = []contender{
	proxies[0],
	{"headgate --forwarding dsr", func(r *rig) proxy { return newCarrier(r, "dsr") }},
	{"headgate --forwarding marked --filters", func(r *rig) proxy {
		h := newCarrier(r, "marked", "--filters", "--dsr-key-file", r.key("dsr-key"))
		h.says = "headgate.dev/forwarding: dsr"
		return h
	}},
}

func TestProgramsCarried(t *testing.T) {
	s := setting{"node-b", lb.TCP, ipv4, append(slices.Clone(paths), external), carriers}
	compare(t, s, socketActivation, ssh, rabbitMQ, haproxy)
}

func newCarrier(r *rig, forwarding string, flags ...string) *headgate {
	r.t.Helper()
	return newHeadgate(r, append([]string{"--forwarding", forwarding, "--hash-key-file", r.key("hash-key")}, flags...)...)
}

// key writes a key that all nodes have.
func (r *rig) key(name string) string {
	r.t.Helper()
	file := filepath.Join(r.dir, name)
	if err := os.WriteFile(file, []byte(name+", long enough and the same at all nodes"), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return file
}

// carries returns an error until node-a carries to node-b what begins.
func (h *headgate) carries() error {
	_, err := h.carried()
	return err
}

// carried is how many packets within TCP connections node-a has carried to node-b.
func (h *headgate) carried() (uint64, error) {
	i, err := datapath.Inspect(h.agents[0].Root)
	if err != nil {
		return 0, err
	}
	defer i.Close()
	for id, p := range i.Peers() {
		if p.Theirs == h.r.topology.Machine(h.r.home).Addrs[0] && p.Usable {
			counts, err := i.PeerCounts(id)
			return counts.CarriedTCP, err
		}
	}
	return 0, fmt.Errorf("node-a does not carry to %s", h.r.home)
}

// askOnce has a client ask the Service. What is carried has to be counted, and the server has to see the client's
// own address. By the rules it sees another one.
func (p program) askOnce(r *rig, way path) error {
	if !way.external {
		return p.askBy(r, way, false)
	}
	if err := r.watchClients(); err != nil {
		return err
	}
	h, carries := r.proxy.(*headgate)
	if !carries {
		return errors.Join(p.askBy(r, way, false), r.wantClient(nodeAddr))
	}
	before, err := h.carried()
	if err != nil {
		return err
	}
	if err := p.askBy(r, way, false); err != nil {
		return err
	}
	after, err := h.carried()
	if after == before {
		err = errors.Join(err, errors.New("node-a has carried no packet within a connection"))
	}
	return errors.Join(err, r.wantClient(outsideAddr))
}

// watched are what the address of a client outside may be for the server.
var watched = []netip.Addr{nodeAddr, outsideAddr}

// watchClients has the server count connections from the watched addresses, from 0.
func (r *rig) watchClients() error {
	text := "table ip clients; delete table ip clients; table ip clients {\n"
	for i := range watched {
		text += fmt.Sprintf("counter from-%d {}\n", i)
	}
	text += "chain in { type filter hook prerouting priority raw;\n"
	for i, addr := range watched {
		text += fmt.Sprintf("ip saddr %s tcp dport %d tcp flags & (syn | ack) == syn counter name from-%d\n", addr, r.port, i)
	}
	return r.run("server", "nft", text+"}; }")
}

// wantClient returns an error unless the server has seen connections from this watched address alone.
func (r *rig) wantClient(want netip.Addr) error {
	for i, addr := range watched {
		seen, err := r.output("server", "nft", "list", "counter", "ip", "clients", fmt.Sprint("from-", i))
		if err != nil {
			return err
		}
		if some := !strings.Contains(seen, "packets 0 "); some != (addr == want) {
			return fmt.Errorf("the server has seen connections from %s: %v, want those from %s alone", addr, some, want)
		}
	}
	return nil
}
