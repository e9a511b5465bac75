package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/source/proxyconfig"
)

// sysctls makes files as the kernel has them, and returns their directory.
func sysctls(tb testing.TB, values map[string]string) string {
	tb.Helper()
	dir := tb.TempDir()
	for name, value := range values {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}

func TestKernelConntrackIsSetAsKubeProxyDoes(t *testing.T) {
	defaults := proxyconfig.Conntrack{MaxPerCore: 32768, Min: 131072, TCPEstablishedTimeout: 24 * time.Hour, TCPCloseWaitTimeout: time.Hour}
	const maxName, established, closeWait, udp, stream, liberal = "nf_conntrack_max", "nf_conntrack_tcp_timeout_established",
		"nf_conntrack_tcp_timeout_close_wait", "nf_conntrack_udp_timeout", "nf_conntrack_udp_timeout_stream", "nf_conntrack_tcp_be_liberal"
	for _, tc := range []struct {
		name   string
		config proxyconfig.Conntrack
		was    map[string]string
		want   map[string]string
	}{
		{"defaults", defaults,
			map[string]string{maxName: "9\n", established: "432000\n", closeWait: "60\n", udp: "30\n"},
			map[string]string{maxName: "131072", established: "86400", closeWait: "3600", udp: "30\n"}},
		{"a larger table stays", defaults, map[string]string{maxName: "2000000\n"}, map[string]string{maxName: "2000000\n"}},
		{"nothing asked for", proxyconfig.Conntrack{Min: 70}, map[string]string{maxName: "9\n", closeWait: "60\n", liberal: "0\n"},
			map[string]string{maxName: "9\n", closeWait: "60\n", liberal: "0\n"}},
		{"the table is never larger than kube-proxy makes it", proxyconfig.Conntrack{MaxPerCore: 1 << 30}, map[string]string{maxName: "9\n"}, map[string]string{maxName: "1048576"}},
		{"what a cluster does not ask for", proxyconfig.Conntrack{UDPTimeout: 5 * time.Second, UDPStreamTimeout: 6 * time.Second, TCPBeLiberal: true},
			map[string]string{udp: "30\n", stream: "120\n", liberal: "0\n"}, map[string]string{udp: "5", stream: "6", liberal: "1"}},
		{"no connection tracking", defaults, nil, map[string]string{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := sysctls(t, tc.was)
			if err := setKernelConntrack(dir, tc.config); err != nil {
				t.Error(err)
			}
			got := map[string]string{}
			files, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				text, err := os.ReadFile(filepath.Join(dir, f.Name()))
				if err != nil {
					t.Fatal(err)
				}
				got[f.Name()] = string(text)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
		})
	}
}
