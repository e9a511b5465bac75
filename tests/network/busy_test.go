package network

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/traffic/rules"
)

// Pauses between datagrams, by what these say: of sockets that send at any moment, and of others.
var paces = map[string]time.Duration{"busy": 100 * time.Microsecond, "idle": 2 * time.Millisecond}

// silence is after how long a pod sends no more to who has sent nothing.
const silence = 200 * time.Millisecond

// chat is a socket of a client outside and a pod that send each other datagrams all the
// time, and wait for nobody.
type chat struct {
	pace  string
	to    netip.AddrPort
	conn  net.Conn
	quiet atomic.Bool // sends nothing

	mu   sync.Mutex
	said string // by the pod: who it is, and whom it hears
	at   time.Time
}

// heard returns what was heard since a time, "" for nothing.
func (c *chat) heard(since time.Time) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.Before(since) {
		return ""
	}
	return c.said
}

// chat opens sockets to an address, busy ones and others.
func (s *besideStage) chat(to netip.AddrPort) (all []*chat) {
	s.tb.Helper()
	for pace, pause := range paces {
		c := &chat{pace: pace, to: to}
		s.client.do(func() (err error) {
			c.conn, err = net.Dial("udp", to.String())
			return err
		})
		s.tb.Cleanup(func() { c.conn.Close() })
		all = append(all, c)
		go func() {
			for c.send() {
				time.Sleep(pause)
			}
		}()
		go c.listen()
	}
	return all
}

// send sends a datagram, and says whether the socket is open.
func (c *chat) send() bool {
	if c.quiet.Load() {
		return true
	}
	_, err := c.conn.Write([]byte(c.pace))
	return err == nil || !strings.Contains(err.Error(), net.ErrClosed.Error())
}

func (c *chat) listen() {
	for b := make([]byte, 128); ; {
		n, err := c.conn.Read(b)
		if err != nil && strings.Contains(err.Error(), net.ErrClosed.Error()) {
			return
		}
		if err == nil {
			c.mu.Lock()
			c.said, c.at = string(b[:n]), time.Now()
			c.mu.Unlock()
		}
	}
}

// chats has the pod of a node send to whoever sends to it, at the same pace.
func (n *node) chats() {
	n.tb.Helper()
	n.pod.do(func() error {
		for _, network := range []string{"udp4", "udp6"} {
			l, err := new(net.ListenConfig).ListenPacket(context.Background(), network, ":8080")
			if err != nil {
				return err
			}
			n.tb.Cleanup(func() { l.Close() })
			go answerAll(l.(*net.UDPConn), fmt.Sprintf("pod-%d", n.number))
		}
		return nil
	})
}

func answerAll(l *net.UDPConn, name string) {
	var mu sync.Mutex
	lately := map[netip.AddrPort]time.Time{}
	for b := make([]byte, 128); ; {
		n, from, err := l.ReadFromUDPAddrPort(b)
		if err != nil && strings.Contains(err.Error(), net.ErrClosed.Error()) {
			return
		}
		if err != nil {
			continue
		}
		mu.Lock()
		_, known := lately[from]
		lately[from] = time.Now()
		mu.Unlock()
		if known {
			continue
		}
		go func(pause time.Duration) {
			text := fmt.Appendf(nil, "%s %s", name, from)
			for talks := true; talks; time.Sleep(pause) {
				_, _ = l.WriteToUDPAddrPort(text, from)
				mu.Lock()
				if talks = time.Since(lately[from]) < silence; !talks {
					delete(lately, from)
				}
				mu.Unlock()
			}
		}(paces[string(b[:n])])
	}
}

// TestBusyDatagramsOutliveHeadgate has sockets of a client outside send to pods and hear from
// them, some every 100 µs, first by rules such as kube-proxy's, then by an agent, which gives
// each another pod. The kernel knows the former one still when Headgate is removed: each goes
// on with the pod that it has, and none is lost, though packets come while they are handed over.
func TestBusyDatagramsOutliveHeadgate(t *testing.T) {
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("needs nftables: apt-get install nftables")
	}
	s := newBesideStage(t)
	for _, node := range s.nodes {
		node.chats()
	}
	other := map[uint16]uint16{onNode1: onNode2, onNode2: onNode1}
	for f, local := range []string{"10.244.0.0/16", "fd00:10:244::/48"} {
		var all []rules.Service
		for port, pod := range other {
			backend := netip.AddrPortFrom(s.nodes[pod-onNode1].podAddrs(s.nodes[pod-onNode1].pod)[f], 8080)
			all = append(all, rules.Service{Protocol: "udp", Addr: s.node.at(family(f), port), Endpoints: []netip.AddrPort{backend}})
		}
		writeNFTables(s, all, netip.MustParsePrefix(local))
	}
	var talks []*chat
	for port := range other {
		for _, f := range families {
			talks = append(talks, s.chat(s.node.at(f, port))...)
		}
	}
	haveTheir := func(when string, pods func(port uint16) uint16) (said map[*chat]string) {
		t.Helper()
		said = map[*chat]string{}
		began := time.Now()
		for _, c := range talks {
			pod := fmt.Sprintf("pod-%d ", pods(c.to.Port())-onNode1+1)
			eventually(t, when, func() error {
				said[c] = c.heard(began.Add(2 * silence)) // whom nobody sends to is silent by then
				if !strings.HasPrefix(said[c], pod) {
					return fmt.Errorf("%s datagrams to %s: heard is %q, want %s", c.pace, c.to, said[c], pod)
				}
				return nil
			})
		}
		return said
	}
	haveTheir("by rules", func(port uint16) uint16 { return other[port] })
	beQuiet := func(quiet bool) {
		for _, c := range talks {
			c.quiet.Store(quiet)
		}
		time.Sleep(2 * silence)
	}
	beQuiet(true) // what a pod sends first goes on past the Service
	s.startBeside(t)
	beQuiet(false)
	before := haveTheir("by an agent", func(port uint16) uint16 { return port })
	s.node.stop()
	s.remove(t)
	for c, said := range haveTheir("without Headgate", func(port uint16) uint16 { return port }) {
		if said != before[c] {
			t.Errorf("%s datagrams to %s: heard is %s, was %s", c.pace, c.to, said, before[c])
		}
	}
}
