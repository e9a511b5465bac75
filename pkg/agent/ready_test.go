package agent

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/metrics"
)

// The process that holds the port says that it is well, and the agent is not.
func TestReadyIsWhatTheAgentSaysWhoeverHasItsPort(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(other) }()
	defer server.Close()
	var cfg Config
	cfg.HealthzAddress, cfg.StateDir = other.Addr().String(), filepath.Join(t.TempDir(), "state")
	wantReady(t, cfg.StateDir, "no agent answers")

	a := newStatusServer(cfg, zap.NewNop(), nil, metrics.New("test"))
	answers := a.serve(func() {})
	wantReady(t, cfg.StateDir, "the agent does not serve: the Node object is not known yet")
	a.setNode(lb.Node{Name: "a"})
	wantReady(t, cfg.StateDir, "")
	if mode := mustStat(t, filepath.Join(cfg.StateDir, socketFile)).Mode().Perm(); mode != 0o600 {
		t.Errorf("the socket is open to others: %v", mode)
	}
	if err := answers.stop(); err != nil {
		t.Error(err)
	}
	wantReady(t, cfg.StateDir, "no agent answers")
}

func TestASocketOfAnAgentThatDiedIsReplaced(t *testing.T) {
	var cfg Config
	cfg.StateDir, cfg.Manifests = t.TempDir(), "dir"
	path := filepath.Join(cfg.StateDir, socketFile)
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()
	mustStat(t, path)
	answers := newStatusServer(cfg, zap.NewNop(), nil, metrics.New("test")).serve(func() {})
	wantReady(t, cfg.StateDir, "")
	if err := answers.stop(); err != nil {
		t.Error(err)
	}
}

// wantReady waits until the agent is ready, or until the reason why it is not is this.
func wantReady(t *testing.T, dir, why string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		err := (&Place{StateDir: dir}).AskReady(t.Context())
		if why == "" && err == nil || why != "" && err != nil && strings.Contains(err.Error(), why) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("ready: %v, want %q", err, why)
		}
	}
}

func mustStat(t *testing.T, path string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info
}
