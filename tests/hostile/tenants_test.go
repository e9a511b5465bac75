package hostile_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
)

// stolen are the ports that the attacker asks for, with their targets.
func stolen(targets bool) (all []string) {
	for name, port := range map[string]int{"node": 2222, "number": 30080, "pod": 8080, "api": 6443, "kubelet": 10250} {
		if targets {
			all = append(all, fmt.Sprintf("{name: %s, protocol: TCP, port: 8080}", name))
		} else {
			all = append(all, fmt.Sprintf("{name: %s, protocol: TCP, port: %d, targetPort: 8080}", name, port))
		}
	}
	return all
}

// greedy claims everything that is the victim's, or the node's. Its name comes first.
var greedy = object{
	namespace: "attacker", name: "aaa", created: "2026",
	spec: []string{"type: NodePort", "clusterIP: 10.96.6.6", "clusterIPs: [10.96.6.6]",
		fmt.Sprintf("externalIPs: [%s, %s, %s, %s]", clusterIP.Addr(), loadBalancer.Addr(), nodeAddr, web1Addr)},
	ports: append(stolen(false), webPorts...), targets: append(stolen(true), webTargets...), endpoints: []netip.Addr{tenantAddr},
}

// balanced are those whose load balancer has what is not its own.
func balanced(name, last string, status netip.Addr) object {
	return object{
		namespace: "attacker", name: name, created: "2026", status: status.String(),
		spec:  []string{"type: LoadBalancer", "clusterIP: 10.96.6." + last, "clusterIPs: [10.96.6." + last + "]"},
		ports: stolen(false), targets: stolen(true), endpoints: []netip.Addr{tenantAddr},
	}
}

// disguised says that what it claims is an endpoint of its own, and pointing that the
// victim's addresses are.
var (
	disguised = object{
		namespace: "attacker", name: "disguised", created: "2026", status: nodeAddr.String(),
		spec:  []string{"type: LoadBalancer", "clusterIP: 10.96.6.9", "clusterIPs: [10.96.6.9]", fmt.Sprintf("externalIPs: [%s]", nodeAddr)},
		ports: []string{"{name: api, protocol: TCP, port: 6443}"}, targets: []string{"{name: api, protocol: TCP, port: 6443}"},
		endpoints: []netip.Addr{nodeAddr, tenantAddr},
	}
	pointing = object{
		namespace: "attacker", name: "pointing", created: "2026", spec: []string{"clusterIP: 10.96.6.10", "clusterIPs: [10.96.6.10]"},
		ports: []string{"{name: t, protocol: TCP, port: 80}"}, targets: []string{"{name: t, protocol: TCP, port: 80}"},
		endpoints: []netip.Addr{loadBalancer.Addr(), clusterIP.Addr(), nodeAddr},
	}
)

// claim is made while all others are there.
func claim(s *stage) {
	var all string
	for _, o := range []object{greedy, balanced("node", "7", nodeAddr), balanced("pod", "8", web1Addr), disguised, pointing} {
		all += o.yaml()
	}
	s.agent.Write("aaa.yaml", all)
	time.Sleep(time.Second)
}

// restart has the agent read the attacker's name first.
func restart(s *stage) {
	s.agent.Kill()
	s.agent.Start()
}

// none is what an attacker does who has done all there is to do.
func none(context.Context, *stage, *row) {}

func withdrawClaims(s *stage) { s.withdraw("aaa.yaml") }

// wantLate has the victim add a Service, which must work.
func (s *stage) wantLate(ctx context.Context, got *row) {
	s.tb.Helper()
	s.agent.Write("late.yaml", late.yaml())
	began := time.Now()
	for ctx.Err() == nil || time.Since(began) < 10*time.Second {
		if s.askOutside(lateAddress) == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	got.gain("a Service that the victim adds is not served: %v", s.askOutside(lateAddress))
}

// askOutside connects once from outside.
func (s *stage) askOutside(to netip.AddrPort) error {
	return s.topology.Namespace("outside").Do(func() error {
		fd, err := dial(unix.SOCK_STREAM, to, time.Second)
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		return err
	})
}

func sourceRanges(ctx context.Context, s *stage, got *row) {
	o := object{
		namespace: "attacker", name: "ranges", created: "2026", status: "198.51.100.66", ports: []string{"{name: t, protocol: TCP, port: 80, targetPort: 8080}"},
		targets: webTargets[:1], endpoints: []netip.Addr{tenantAddr},
		spec: []string{"type: LoadBalancer", "clusterIP: 10.96.6.7", "clusterIPs: [10.96.6.7]", "loadBalancerSourceRanges:"},
	}
	for i := range 65_536 {
		o.spec = append(o.spec, fmt.Sprintf("- 10.%d.%d.%d/32", i>>15, i>>7&0xff, i&0x7f<<1))
	}
	s.agent.Write("attack.yaml", o.yaml())
	s.awaitRead(ctx)
	s.wantLate(ctx, got)
}

// tables asks for tables as large as there are, each for backends of its own.
func tables(ctx context.Context, s *stage, got *row) {
	var all strings.Builder
	for i := range 52 {
		o := object{
			namespace: "attacker", name: fmt.Sprintf("table-%d", i), created: "2026", endpoints: []netip.Addr{tenantAddr, clientAddr},
			annotations: map[string]string{"headgate.dev/algorithm": "maglev", "headgate.dev/table-size": "655373"},
			ports:       []string{fmt.Sprintf("{name: t, protocol: TCP, port: 80, targetPort: %d}", 9000+i)}, targets: []string{fmt.Sprintf("{name: t, protocol: TCP, port: %d}", 9000+i)},
			spec: []string{fmt.Sprintf("clusterIP: 10.96.7.%d", i+1), fmt.Sprintf("clusterIPs: [10.96.7.%d]", i+1)},
		}
		all.WriteString(o.yaml())
	}
	s.agent.Write("attack.yaml", all.String())
	s.awaitRead(ctx)
	s.wantLate(ctx, got)
}

// awaitRead gives the agent the first half of the time to read what was written.
func (s *stage) awaitRead(ctx context.Context) {
	if end, bounded := ctx.Deadline(); bounded {
		pause(ctx, time.Until(end)/2)
	}
}

func withdrawLate(s *stage) { s.withdraw("attack.yaml", "late.yaml") }
func withdrawOne(s *stage)  { s.withdraw("attack.yaml") }

// probes has the node ask another tenant's pod, and the node itself, what the attacker
// writes.
func probes(ctx context.Context, s *stage, got *row) {
	var asked atomic.Int64
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	for machine, addr := range map[string]netip.Addr{"web-1": web1Addr, "node-a": nodeAddr} {
		s.do(machine, func() error {
			l, err := net.Listen("tcp", netip.AddrPortFrom(addr, 9000).String())
			if err == nil {
				s.tb.Cleanup(func() { _ = l.Close() })
				go func() { _ = http.Serve(l, handler) }()
			}
			return err
		})
	}
	var all strings.Builder
	for i := range 200 {
		o := object{
			namespace: "attacker", name: fmt.Sprintf("probe-%d", i), created: "2026", endpoints: []netip.Addr{web1Addr, nodeAddr},
			annotations: map[string]string{"headgate.dev/probe": fmt.Sprintf("http:/admin/delete?id=%d", i), "headgate.dev/probe-interval": "1s"},
			ports:       []string{"{name: t, protocol: TCP, port: 80, targetPort: 9000}"}, targets: []string{"{name: t, protocol: TCP, port: 9000}"},
			spec: []string{fmt.Sprintf("clusterIP: 10.96.8.%d", i+1), fmt.Sprintf("clusterIPs: [10.96.8.%d]", i+1)},
		}
		all.WriteString(o.yaml())
	}
	s.agent.Write("attack.yaml", all.String())
	<-ctx.Done()
	got.requests = int(asked.Load())
}

// controlCharacters forges lines of what people read on their terminals.
func controlCharacters(ctx context.Context, s *stage, got *row) {
	const forged = "headgate: all is well"
	for _, field := range []string{"name", "namespace", "kind"} {
		text := map[string]string{"kind": "Service", "name": "x", "namespace": "y"}
		text[field] = `x\e[2J\n` + forged
		s.agent.Write("attack-"+field+".yaml", fmt.Sprintf("apiVersion: v1\nkind: \"%s\"\nmetadata: {name: \"%s\", namespace: \"%s\"}\nspec: {ports: 7}\n", text["kind"], text["name"], text["namespace"]))
	}
	<-ctx.Done()
	said := s.agent.Output("status")
	for line := range bytes.Lines(said) {
		if bytes.HasPrefix(line, []byte(forged)) {
			got.gain("a forged line of headgate status")
			break
		}
	}
	if bytes.ContainsFunc(said, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }) {
		got.gain("control characters in headgate status")
	}
}

func withdrawNames(s *stage) {
	s.withdraw("attack-name.yaml", "attack-namespace.yaml", "attack-kind.yaml")
}

// brokenDocuments writes so many that the report of them is the attack.
func brokenDocuments(ctx context.Context, s *stage, got *row) {
	before := s.agent.Log.Len()
	s.agent.Write("attack.yaml", strings.Repeat("---\nkind: 7\n", 200_000))
	s.awaitRead(ctx)
	s.wantLate(ctx, got)
	if logged := s.agent.Log.Len() - before; logged > 1<<20 {
		got.gain("%d MB of log", logged>>20)
	}
	if lines := bytes.Count(s.agent.Output("status"), []byte("\n")); lines > 1000 {
		got.gain("%d lines of headgate status", lines)
	}
}

// badEndpoint has a Service that begins with one endpoint that is refused, beside one
// that works.
func badEndpoint(ctx context.Context, s *stage, got *row) {
	o := late
	o.endpoints = []netip.Addr{netip.MustParseAddr("127.0.0.1"), web1Addr}
	s.agent.Write("attack.yaml", o.yaml())
	began := time.Now()
	for ctx.Err() == nil || time.Since(began) < 5*time.Second {
		if s.askOutside(lateAddress) == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	got.gain("a Service is not served since one of its endpoints is bad")
}
