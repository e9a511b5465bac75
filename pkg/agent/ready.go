package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/httpserve"
)

// socketFile is where the agent itself answers /healthz and /livez, within the state
// directory. Its ports another service proxy may hold.
const socketFile = "agent.sock"

// serveSocket answers there until the context ends.
func (a *statusServer) serveSocket(ctx context.Context) error {
	path := a.cfg.stateFile(socketFile)
	return httpserve.Run(ctx, httpserve.Config{
		Address: path, Handler: a.proxy.Handler(), Listen: listenAlone,
		Report: func(err error) {
			a.log.Warn("answer headgate ready, will try again", zap.Error(err))
		},
	})
}

// listenAlone opens a socket for this user in place of one that an earlier process left.
func listenAlone(_, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// askTimeout is how long an agent may take to answer.
const askTimeout = 3 * time.Second

// AskReady returns an error unless the agent with a state directory serves: it answers
// /healthz with 200.
func AskReady(ctx context.Context, stateDir string) error {
	path := filepath.Join(stateDir, socketFile)
	client := http.Client{Timeout: askTimeout, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/healthz", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("no agent answers at %s: %w: start one, or name its directory with --state-dir", path, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	var said struct {
		Reason string `json:"reason"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&said); err != nil {
		return fmt.Errorf("read the answer of the agent at %s: %w", path, err)
	}
	return fmt.Errorf("the agent does not serve: %s", said.Reason)
}
