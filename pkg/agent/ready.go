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
)

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

// AskReady returns an error unless the agent serves: it answers /healthz with 200.
func (p *Place) AskReady(ctx context.Context) error {
	return p.ask(ctx, request{http.MethodGet, "/healthz", askTimeout, ""}, func(resp *http.Response) error {
		if resp.StatusCode == http.StatusOK {
			return nil
		}
		var said struct {
			Reason string `json:"reason"`
		}
		if err := json.NewDecoder(resp.Body).Decode(&said); err != nil {
			return fmt.Errorf("read the answer of the agent of %s: %w", p.StateDir, err)
		}
		return fmt.Errorf("the agent does not serve: %s", said.Reason)
	})
}
