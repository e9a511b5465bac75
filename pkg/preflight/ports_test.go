package preflight

import (
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/tests/testenv"
)

func TestAPortIsTakenByWhoListensWhereTheAgentWould(t *testing.T) {
	testenv.EnterNetns(t)
	testenv.AddAddress(t, "192.0.2.1")
	testenv.AddAddress(t, "fd00::1")
	me := process{os.Getpid(), "somebody"}
	free := "ok port: %s (--at) is free"
	taken := fmt.Sprintf("failure port-taken: %%s (--at) is taken by somebody (pid %d)", me.pid)
	for _, tc := range []struct{ listens, asked, want string }{
		{"192.0.2.1:10256", "0.0.0.0:10256", taken},
		{"192.0.2.1:10256", "192.0.2.1:10256", taken},
		{"192.0.2.1:10256", "127.0.0.1:10256", free},
		{"192.0.2.1:10256", "0.0.0.0:10257", free},
		{"0.0.0.0:10256", "127.0.0.1:10256", taken},
		{"[fd00::1]:10256", "[::]:10256", taken},
		{"[fd00::1]:10256", "[fd00::1]:10256", taken},
		{"[fd00::1]:10256", "[::1]:10256", free},
		{"[::]:10256", "127.0.0.1:10256", taken},
		{"[::]:10256", ":10256", taken},
		{"192.0.2.1:10256", ":10256", taken},
	} {
		r := &Report{}
		l, err := net.Listen("tcp", tc.listens)
		if err != nil {
			t.Fatal(err)
		}
		r.ports([]Address{{"--at", tc.asked, true}}, []process{me})
		l.Close()
		wantFound(t, r, fmt.Sprintf(tc.want, tc.asked))
	}
}

func TestWhoHasAPortDecidesWhatItMeans(t *testing.T) {
	testenv.EnterNetns(t)
	l, err := net.Listen("tcp", "127.0.0.1:10249")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	pid := os.Getpid()
	at := []Address{{"--metrics-bind-address", "127.0.0.1:10249", false}, {"--healthz-bind-address", "", true}}
	for _, tc := range []struct {
		seen []process
		want string
	}{
		{[]process{{pid, "kube-proxy"}}, "warning port-of-kube-proxy: 127.0.0.1:10249 (--metrics-bind-address) is taken by kube-proxy (pid %d)"},
		{[]process{{1, "init"}, {pid, "headgate"}}, "ok port: 127.0.0.1:10249 (--metrics-bind-address) is the agent's already: headgate (pid %d)"},
		{[]process{{pid, "other"}}, "warning metrics-port-taken: 127.0.0.1:10249 (--metrics-bind-address) is taken by other (pid %d)"},
		{nil, "warning metrics-port-taken: 127.0.0.1:10249 (--metrics-bind-address) is taken by a process that is not seen from here"},
	} {
		r := &Report{}
		r.ports(at, tc.seen)
		want := tc.want
		if len(tc.seen) > 0 {
			want = fmt.Sprintf(want, pid)
		}
		wantFound(t, r, want)
	}
}

func TestAnAddressThatCannotBeReadIsSaidSo(t *testing.T) {
	r := &Report{}
	r.ports([]Address{{Flag: "--at", Value: "nowhere"}, {Flag: "--at", Value: "host:1"}, {Flag: "--at", Value: "127.0.0.1:http"}}, nil)
	wantFound(t, r, "warning not-known: --at nowhere: address nowhere: missing port in address",
		`warning not-known: --at host:1: ParseAddr("host"): unable to parse IP`,
		"warning not-known: --at 127.0.0.1:http: http is not a port")
}

func TestLinesOfTheKernelsListsAreRead(t *testing.T) {
	for line, want := range map[string]string{
		"   0: 0100007F:2809 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0":                                               "127.0.0.1:10249 4711",
		"   1: 00000000000000000000000001000000:2810 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12 1 0 100 0 0 10 0": "[::1]:10256 12",
		"   2: 0100007F:2809 0100007F:0016 01 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0":                                               "",
		"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode":                                                               "",
	} {
		got := ""
		if l, ok := parseListener(line); ok {
			got = l.at.String() + " " + l.inode
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", line, diff)
		}
	}
}
