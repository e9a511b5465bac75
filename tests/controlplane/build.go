// Package controlplane builds and runs a real Kubernetes control plane for
// tests and measurements: etcd, kube-apiserver, kube-controller-manager, and
// kube-proxy to compare with. All are built from the Go module proxy, at the
// versions that binaries/go.mod pins, and kept in the user's cache directory.
//
// Nothing here runs containers or kubelets: Nodes and Pods are objects, whose
// status the test writes.
package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// The binaries that can be built.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	KubeProxy         = "kube-proxy"
)

// Version is that of Kubernetes, the same as in binaries/go.mod.
const Version = "v1.36.3"

// packages are where the binaries come from.
var packages = map[string]string{
	Etcd:              "go.etcd.io/etcd/server/v3",
	APIServer:         "k8s.io/kubernetes/cmd/kube-apiserver",
	ControllerManager: "k8s.io/kubernetes/cmd/kube-controller-manager",
	KubeProxy:         "k8s.io/kubernetes/cmd/kube-proxy",
}

// Build returns a directory in which the binaries of the given names are. It
// builds those that are not there yet, which takes minutes and a network, and says
// so to progress. The calling process must run below the root of a module that
// knows this package.
func Build(ctx context.Context, progress io.Writer, names ...string) (string, error) {
	source, dir, err := places(ctx)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for _, name := range names {
		if err := buildOne(ctx, progress, source, dir, name); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// Built returns the directory of the binaries, or an error if one of them is not
// there yet. It needs no network.
func Built(ctx context.Context, names ...string) (string, error) {
	_, dir, err := places(ctx)
	if err != nil {
		return "", err
	}
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("%s %s is not built yet: go run ./tests/controlplane/built %[1]s", name, Version)
		}
	}
	return dir, nil
}

// places returns where this package is, and where its binaries are kept.
func places(ctx context.Context) (source, dir string, err error) {
	if source, err = sourceDir(ctx); err != nil {
		return "", "", err
	}
	dir, err = cacheDir(source)
	return source, dir, err
}

// buildOne builds a binary unless it is there. It is put in place whole, so that
// two builds at a time do no harm.
func buildOne(ctx context.Context, progress io.Writer, source, dir, name string) error {
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	pkg, known := packages[name]
	if !known {
		return fmt.Errorf("build %q: no such binary of a control plane", name)
	}
	fmt.Fprintf(progress, "build %s %s, once\n", name, Version)
	scratch, err := os.MkdirTemp(dir, ".build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	const version = "k8s.io/component-base/version"
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -X "+version+".gitVersion="+Version+" -X "+version+".gitMajor=1 -X "+version+".gitMinor=36",
		"-o", filepath.Join(scratch, name), pkg)
	cmd.Dir = filepath.Join(source, "binaries")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", name, err, tail(string(out)))
	}
	return os.Rename(filepath.Join(scratch, name), path)
}

// sourceDir returns where this package is.
func sourceDir(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "github.com/headgate/headgate/tests/controlplane").Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", fmt.Errorf("find the source of the control plane: %w\n%s", err, tail(string(exit.Stderr)))
	}
	return strings.TrimSpace(string(out)), err
}

// cacheDir returns where binaries of these versions, of this compiler, are kept.
func cacheDir(source string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("keep the binaries of a control plane: %w", err)
	}
	sum := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(source, "binaries", name))
		if err != nil {
			return "", err
		}
		sum.Write(text)
	}
	fmt.Fprintln(sum, runtime.Version(), runtime.GOARCH)
	return filepath.Join(cache, "headgate", "controlplane", hex.EncodeToString(sum.Sum(nil))[:16]), nil
}

// tail returns the last lines of a text.
func tail(text string) string {
	const most = 20
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}
