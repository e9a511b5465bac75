package traffic

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// clientEnv makes the test program a client process.
const clientEnv = "HEADGATE_TEST_CLIENT"

func TestMain(m *testing.M) {
	if os.Getenv(clientEnv) == "" {
		os.Exit(m.Run())
	}
	if err := ServeJobs(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const testPrefix = "headgate-test"

var (
	nodeAddrs   = addrs("192.0.2.10", "2001:db8::10")
	clientAddrs = addrs("10.244.1.100", "fd00:244:1::64")
	serverAddrs = addrs("10.244.1.1", "fd00:244:1::1")
)

func testSpec(tb testing.TB) Spec {
	return Spec{Name: testName(tb), NodeAddrs: nodeAddrs, Pods: []Pod{{"web", serverAddrs}, {"client", clientAddrs}}}
}

// testName is unique among tests that run at the same time.
func testName(tb testing.TB) string {
	name, _, _ := strings.Cut(tb.Name(), "/")
	return RunName(testPrefix) + "-" + name
}

func requireRoot(tb testing.TB) {
	tb.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("HEADGATE_REQUIRE_PRIVILEGED") == "1" {
		tb.Fatal("needs root")
	}
	tb.Skip("needs root to make network namespaces")
}

func mustTopology(tb testing.TB) *Topology {
	tb.Helper()
	requireRoot(tb)
	topology, err := NewTopology(testSpec(tb))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := topology.Close(); err != nil {
			tb.Error(err)
		}
	})
	return topology
}

func mustServe(tb testing.TB, ns *Namespace, name string, addrs []netip.Addr) *Server {
	tb.Helper()
	server, err := Serve(ns, ServerSpec{Name: name, Addrs: addrs, TCPPort: 8080, UDPPort: 8080})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := server.Close(); err != nil {
			tb.Error(err)
		}
	})
	return server
}

func mustClient(tb testing.TB, ns *Namespace, cgroup *Cgroup) *Client {
	tb.Helper()
	program, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), clientEnv+"=1")
	client, err := StartClient(ns, cgroup, "client", cmd)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = client.Close() }) // some tests kill it
	return client
}

func mustRun(tb testing.TB, client *Client, job Job) Result {
	tb.Helper()
	result, err := client.Run(tb.Context(), job, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return result
}

// threadsIn returns the threads of all processes that are in one of the
// namespaces, after giving them two seconds to leave: a thread outlives by a
// moment the goroutine that it was locked to.
func threadsIn(tb testing.TB, inodes []uint64) []string {
	tb.Helper()
	var inside []string
	for range 100 {
		paths, err := filepath.Glob("/proc/[0-9]*/task/*/ns/net")
		if err != nil {
			tb.Fatal(err)
		}
		inside = slices.DeleteFunc(paths, func(path string) bool {
			var stat unix.Stat_t
			return unix.Stat(path, &stat) != nil || !slices.Contains(inodes, stat.Ino)
		})
		if len(inside) == 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return inside
}

func inode(tb testing.TB, path string) uint64 {
	tb.Helper()
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		tb.Fatal(err)
	}
	return stat.Ino
}

func lines(tb testing.TB, path string) []string {
	tb.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Split(string(text), "\n")
}

func addrs(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

func ports(addrs []netip.Addr, port uint16) []netip.AddrPort {
	var list []netip.AddrPort
	for _, addr := range addrs {
		list = append(list, netip.AddrPortFrom(addr, port))
	}
	return list
}
