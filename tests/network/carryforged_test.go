package network

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"
)

// A pod can send what a node carries, once its packets get the address of the node. Nodes let no such
// packet over UDP leave. No peer takes one from a node without Headgate, since it lacks a proof. IP in IP is
// left to the stacks of both nodes.
func TestWhatPodsForgeDoesNotGetThere(t *testing.T) {
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("needs nftables: apt-get install nftables")
	}
	const from, home = 0, 1
	f := newFabricOver(t, "dsr", underlay{mtu: 1500, both: true})
	f.startCarrying(t, home)
	f.nodes[from].execute(`table inet clients {
 chain leaves { type nat hook postrouting priority srcnat;
  oifname "eth0" ip saddr 10.244.0.0/16 masquerade; oifname "eth0" ip6 saddr fd00:10:244::/48 masquerade; }
}
`, "nft", "-f", "-")
	for network, want := range map[string]uint64{"udp": forgeries, "ip:4": 0} {
		for _, outer := range families {
			before := f.nodes[from].counter(t, "carry_forged")
			f.wantNotTaken(t, network, outer, from, home)
			if counted := f.nodes[from].counter(t, "carry_forged") - before; counted != want {
				t.Errorf("of %d packets over %s and %v %d are counted as forged, want %d", forgeries, network, outer, counted, want)
			}
		}
	}
	for _, family := range families {
		f.wantTransfer(t, family, 1<<20)
		f.dialCarried(t, family, f.nodes[from]).Close()
	}
	if err := f.carries(); err != nil {
		t.Errorf("a peer is not usable any more: %v", err)
	}
	f.nodes[from].remove(t)
	for _, network := range []string{"udp", "ip:4"} {
		for _, outer := range families {
			f.wantNotTaken(t, network, outer, from, home)
		}
	}
}

// wantNotTaken wants no answer to what a pod forges, and all IP in IP of it at the stack of the home.
func (f *fabric) wantNotTaken(t *testing.T, network string, outer family, from, home int) {
	t.Helper()
	stack := f.nodes[home].tunnelEnd(outer, 4)
	defer stack.Close()
	if f.isForged(t, network, outer, from, home) {
		t.Errorf("what a pod forges over %s and %v gets there", network, outer)
	}
	if arrived := len(received(t, stack)); network == "ip:4" && arrived != forgeries {
		t.Errorf("of %d packets of IP in IP over %v %d get to the stack of the home", forgeries, outer, arrived)
	}
}

// takenForForged is how many packets nodes have not let leave.
func (f *fabric) takenForForged(t *testing.T) (sum uint64) {
	t.Helper()
	for _, n := range f.nodes {
		sum += n.counter(t, "carry_forged")
	}
	return sum
}

// remove takes Headgate off a node.
func (n *node) remove(t *testing.T) {
	t.Helper()
	n.stop()
	cmd := exec.Command("/proc/self/exe", "--bpf-root", n.root, "cleanup")
	cmd.Env = append(os.Environ(), asHeadgate+"=1")
	n.do(func() error {
		if said, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("clean up: %w: %s", err, said)
		}
		return nil
	})
}

// forgeries is how often a pod tries.
const forgeries = 5

// isForged says whether a client gets an answer to what a pod of a node sent as that client, in an outer
// header of UDP or of IP in IP to another node.
func (f *fabric) isForged(t *testing.T, network string, outer family, from, to int) bool {
	t.Helper()
	client, err := f.client.dial("udp", carriedAt[0])
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	peer := [2]netip.Addr{f.nodes[to].addr, f.nodes[to].addr6}[outer]
	var pod net.Conn
	f.pods[from].do(func() (err error) {
		if network == "udp" {
			pod, err = dial(network, netip.AddrPortFrom(peer, 6635))
			return err
		}
		pod, err = net.Dial(network, peer.String())
		return err
	})
	defer pod.Close()
	forged := datagramOf(client.LocalAddr().(*net.UDPAddr).AddrPort(), carriedAt[0], "who")
	if network == "udp" {
		forged = append(make([]byte, 8), forged...) // behind a guessed cookie
	}
	for range forgeries {
		_, _ = pod.Write(forged)
		_ = client.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		if n, err := client.Read(make([]byte, 100)); err == nil && n > 0 {
			return true
		}
	}
	return false
}

// datagramOf returns an IPv4 packet without a checksum of UDP.
func datagramOf(from, to netip.AddrPort, payload string) []byte {
	h := []byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0}
	h = append(append(h, from.Addr().AsSlice()...), to.Addr().AsSlice()...)
	binary.BigEndian.PutUint16(h[2:], uint16(28+len(payload)))
	var sum uint32
	for i := 0; i < len(h); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(h[i:]))
	}
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(h[10:], ^uint16(sum&0xffff+sum>>16))
	h = binary.BigEndian.AppendUint16(h, from.Port())
	h = binary.BigEndian.AppendUint16(h, to.Port())
	h = binary.BigEndian.AppendUint16(h, uint16(8+len(payload)))
	return append(append(h, 0, 0), payload...)
}
