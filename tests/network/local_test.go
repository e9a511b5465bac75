package network

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"
)

// asClient makes this binary ask servers: the value is protocol, address, port and
// how often, between blanks. It prints a line for each answer.
const asClient = "HEADGATE_TEST_AS_CLIENT"

func askHere(question string) {
	var protocol, to string
	var times int
	if _, err := fmt.Sscanf(question, "%s %s %d", &protocol, &to, &times); err != nil {
		fmt.Println("error:", err)
		return
	}
	for range times {
		d := net.Dialer{Timeout: 2 * time.Second}
		d.SetMultipathTCP(false)
		conn, err := d.Dial(protocol, to)
		var said string
		if err == nil {
			_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
			if protocol == "udp" {
				said, err = exchange(conn, "hello")
			} else {
				said, err = who(conn)
			}
			conn.Close()
		}
		if err != nil {
			said = "error: " + err.Error()
		}
		fmt.Println(said)
	}
}

// askLocally asks from a process whose sockets the agent of the node balances:
// in the node's own network namespace, or in that of a pod.
func (n *node) askLocally(from *host, protocol string, to netip.AddrPort, times int) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d", asClient, protocol, to, times))
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	n.cgroup.Adopt(cmd)
	if err := from.Start(cmd); err != nil {
		return nil, err
	}
	err := cmd.Wait()
	return strings.Split(strings.TrimSpace(out.String()), "\n"), err
}
