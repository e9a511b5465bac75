package network

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/netdev"
)

// TestManyFlowsAreHandedOver has many clients send one datagram each, to pods on the node and on another
// one, and Headgate removed. HEADGATE_HANDED_OVER is how many.
func TestManyFlowsAreHandedOver(t *testing.T) {
	count := 2_000
	if text := os.Getenv("HEADGATE_HANDED_OVER"); text != "" {
		var err error
		if count, err = strconv.Atoi(text); err != nil {
			t.Fatalf("HEADGATE_HANDED_OVER: %v", err)
		}
	}
	n := newNetwork(t, false)
	node := n.nodes[0]
	node.cniFirewall() // it translates addresses
	node.options = []string{"--flows", strconv.Itoa(max(1<<17, 20*count))}
	for _, other := range n.nodes {
		other.takeDatagrams()
	}
	n.startAgents()
	to := []netip.AddrPort{node.at(0, onNode1), node.at(0, onNode2)}
	device := n.packetDevice(t)
	for i := range count {
		frame := append(device.macs[:12:12], datagram(uint32(i), to[i%len(to)])...)
		if err := unix.Sendto(device.socket, frame, 0, device.link); err != nil {
			t.Fatal(err)
		}
		if i%64 == 0 {
			time.Sleep(2 * time.Millisecond) // devices between take so many at once
		}
	}
	eventually(t, "each datagram has its flow", func() error {
		if made := node.counter(t, "flow_made"); made < uint64(count) {
			return fmt.Errorf("%d were made", made)
		}
		return nil
	})
	node.stop()

	cmd := exec.Command("/proc/self/exe", "--bpf-root", node.root, "cleanup", "-j")
	cmd.Env, cmd.Stderr = append(os.Environ(), asHeadgate+"=1"), os.Stderr
	began := time.Now()
	var said []byte
	node.do(func() (err error) { said, err = cmd.Output(); return err })
	took := time.Since(began)
	var done struct{ HandedOver, Lost int }
	if err := json.Unmarshal(said, &done); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	use := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	t.Logf("%d connections handed over in %v, with %v of CPU time and %d MB", done.HandedOver, took.Round(time.Millisecond), cmd.ProcessState.SystemTime()+cmd.ProcessState.UserTime(), use.Maxrss>>10)
	if done.HandedOver < count || done.Lost > 0 {
		t.Errorf("of %d connections %d are handed over, %d are lost", count, done.HandedOver, done.Lost)
	}
	var translated []netdev.Translated
	node.do(func() (err error) { translated, err = netdev.TranslatedConnections(); return err })
	if len(translated) != done.HandedOver {
		t.Errorf("the kernel translates %d connections, want %d", len(translated), done.HandedOver)
	}
}

// takeDatagrams has the pod of a node take datagrams, and answer none.
func (n *node) takeDatagrams() {
	n.tb.Helper()
	n.pod.do(func() error {
		l, err := net.ListenUDP("udp", &net.UDPAddr{Port: 8080})
		if err == nil {
			n.tb.Cleanup(func() { l.Close() })
		}
		return err
	})
}

// datagram is a datagram of a number, as syn is a SYN.
func datagram(number uint32, to netip.AddrPort) []byte {
	const addresses = 200
	p := make([]byte, 2+20+8)
	copy(p, []byte{8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, unix.IPPROTO_UDP})
	ip, udp := p[2:22], p[22:]
	copy(ip[12:], []byte{198, 51, 100, byte(20 + number%addresses)})
	copy(ip[16:], to.Addr().AsSlice())
	binary.BigEndian.PutUint16(ip[10:], ^sum(ip))
	binary.BigEndian.PutUint16(udp, uint16(1024+number/addresses%60_000))
	binary.BigEndian.PutUint16(udp[2:], to.Port())
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp))) // without a sum
	return p
}
