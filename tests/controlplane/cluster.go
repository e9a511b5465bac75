package controlplane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/headgate/headgate/pkg/traffic"
)

// Where the parts listen, in a namespace that is theirs alone.
const (
	// ServerURL is the API server's.
	ServerURL = "https://127.0.0.1:6443"
	// EtcdURL is that of etcd, which speaks JSON on it as well as gRPC.
	EtcdURL = "http://127.0.0.1:2379"
)

// Users, by the token that they present.
const (
	adminToken = "admin"
	proxyToken = "proxy"
	guestToken = "guest"
)

// Config says how a control plane is run.
type Config struct {
	Binaries  string             // a directory, see Build
	Dir       string             // for data, keys and logs; it must be there
	Namespace *traffic.Namespace // with its loopback device up
	// ServiceCIDRs are what ClusterIPs are taken from, IPv4 first.
	ServiceCIDRs []string
	// Controllers are those that run, none for no controller manager.
	Controllers []string
	// WatchCacheSizes say how many old events the API server remembers of a
	// resource, such as "endpointslices.discovery.k8s.io#100000".
	WatchCacheSizes []string
}

// Cluster is a control plane that runs.
type Cluster struct {
	Client      *Client // as an administrator
	config      Config
	etcd        *Process
	server      *Process
	controllers *Process
}

// Start starts a control plane and returns when it serves. On error nothing is
// left running.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	c := &Cluster{config: cfg, Client: newClient(cfg.Namespace, adminToken)}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) (err error) {
	if err := c.writeFiles(); err != nil {
		return err
	}
	// The data may be lost at any time: there is no need to sync it.
	c.etcd, err = c.run(Etcd, "--data-dir", c.path("etcd"), "--unsafe-no-fsync", "--log-level", "warn",
		"--listen-client-urls", EtcdURL, "--advertise-client-urls", EtcdURL,
		"--listen-peer-urls", "http://127.0.0.1:2380", "--quota-backend-bytes", "4294967296")
	if err != nil {
		return err
	}
	if err := c.StartServer(ctx); err != nil {
		return err
	}
	if len(c.config.Controllers) == 0 {
		return nil
	}
	c.controllers, err = c.run(ControllerManager, "--kubeconfig", c.path("admin.kubeconfig"), "--leader-elect=false",
		"--controllers", strings.Join(c.config.Controllers, ","), "--kube-api-qps", "-1", "--concurrent-service-endpoint-syncs", "10",
		"--secure-port", "0", "--endpointslice-updates-batch-period", "0s", "--mirroring-endpointslice-updates-batch-period", "0s")
	return err
}

// StartServer starts the API server, or starts it again after StopServer, and
// returns when it is ready.
func (c *Cluster) StartServer(ctx context.Context) (err error) {
	args := []string{"--etcd-servers", EtcdURL, "--bind-address", "127.0.0.1", "--secure-port", "6443",
		"--cert-dir", c.path("serving"), "--token-auth-file", c.path("tokens.csv"), "--authorization-mode", "RBAC",
		"--service-cluster-ip-range", strings.Join(c.config.ServiceCIDRs, ","), "--endpoint-reconciler-type", "none",
		"--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", c.path("accounts.key"), "--service-account-signing-key-file", c.path("accounts.key"),
		// Pods here have no ServiceAccount, and one client makes very many requests.
		"--disable-admission-plugins", "ServiceAccount", "--enable-priority-and-fairness=false",
		"--max-requests-inflight", "0", "--max-mutating-requests-inflight", "0",
		"--advertise-address", "127.0.0.1", "--shutdown-delay-duration", "0s"}
	if sizes := c.config.WatchCacheSizes; len(sizes) > 0 {
		args = append(args, "--watch-cache-sizes", strings.Join(sizes, ","))
	}
	if c.server, err = c.run(APIServer, args...); err != nil {
		return err
	}
	return c.awaitReady(ctx)
}

// awaitReady returns when the API server says that it is ready, and lets service
// proxies in: it reads who may do what a little later, and refuses all until then.
func (c *Cluster) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	proxy := newClient(c.config.Namespace, proxyToken)
	defer proxy.http.CloseIdleConnections()
	for {
		err := c.Client.Do(ctx, http.MethodGet, "/readyz", "", nil, nil)
		if err == nil {
			err = proxy.Do(ctx, http.MethodGet, "/apis/discovery.k8s.io/v1/endpointslices?limit=1", "", nil, nil)
		}
		if err == nil {
			return nil
		}
		select {
		case <-c.server.Ended():
			return fmt.Errorf("kube-apiserver ended; the end of its log:\n%s", c.server.Tail())
		case <-ctx.Done():
			return fmt.Errorf("kube-apiserver is not ready: %w; the end of its log:\n%s", err, c.server.Tail())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// StopServer ends the API server at once, as a crash does.
func (c *Cluster) StopServer() { c.server.Kill() }

// Close ends everything.
func (c *Cluster) Close() error {
	for _, p := range []*Process{c.controllers, c.server, c.etcd} {
		if p != nil {
			p.Kill()
		}
	}
	c.Client.http.CloseIdleConnections()
	return nil
}

// PIDs returns the processes of the parts, by name.
func (c *Cluster) PIDs() map[string]int {
	out := map[string]int{Etcd: c.etcd.PID(), APIServer: c.server.PID()}
	if c.controllers != nil {
		out[ControllerManager] = c.controllers.PID()
	}
	return out
}

// Compact makes etcd, and with that the API server, forget all revisions but the
// present one: whoever asks for changes since an earlier one is told that it has
// expired.
func (c *Cluster) Compact(ctx context.Context) error {
	var now struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	plain := &Client{http: c.Client.http, url: EtcdURL}
	if err := plain.Do(ctx, http.MethodPost, "/v3/kv/range", "application/json", map[string]string{"key": "AA=="}, &now); err != nil {
		return fmt.Errorf("ask etcd for its revision: %w", err)
	}
	return plain.Do(ctx, http.MethodPost, "/v3/kv/compaction", "application/json",
		map[string]any{"revision": now.Header.Revision, "physical": true}, nil)
}

// ProxyKubeconfig returns the path of a kubeconfig of the user that service
// proxies are, with the rights of the ClusterRole system:node-proxier.
func (c *Cluster) ProxyKubeconfig() string { return c.path("proxy.kubeconfig") }

// Guest is a user without any right but those that everybody has.
const Guest = "guest"

// GuestKubeconfig returns the path of a kubeconfig of Guest.
func (c *Cluster) GuestKubeconfig() string { return c.path("guest.kubeconfig") }

func (c *Cluster) path(name string) string { return filepath.Join(c.config.Dir, name) }

func (c *Cluster) run(name string, args ...string) (*Process, error) {
	return StartProcess(c.config.Namespace, nil, c.config.Dir, name, exec.Command(filepath.Join(c.config.Binaries, name), args...))
}

// writeFiles writes who may do what, and the key of ServiceAccounts.
func (c *Cluster) writeFiles() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		"accounts.key": string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})),
		"tokens.csv": adminToken + ",admin,1,system:masters\n" +
			proxyToken + ",system:kube-proxy,2,system:authenticated\n" +
			guestToken + "," + Guest + ",3,system:authenticated\n",
		"admin.kubeconfig": kubeconfig(adminToken),
		"proxy.kubeconfig": kubeconfig(proxyToken),
		"guest.kubeconfig": kubeconfig(guestToken),
	} {
		if err := os.WriteFile(c.path(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// kubeconfig returns that of a user. The server makes its certificate itself;
// nobody else can be on this loopback device.
func kubeconfig(token string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test}}]
clusters: [{name: test, cluster: {server: %q, insecure-skip-tls-verify: true}}]
users: [{name: test, user: {token: %q}}]
`, ServerURL, token)
}
