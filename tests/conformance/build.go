package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// kubernetes is the version that judges; its libraries have the same number.
const kubernetes = "1.36.3"

// A component is a module of which programs are built.
type component struct {
	name     string
	module   string
	version  string
	packages []string // programs, relative to the module
	flags    []string // of go build
	main     string   // a file of files/ that is built instead
}

var components = []component{
	{name: "kubernetes", module: "k8s.io/kubernetes", version: "v" + kubernetes, flags: []string{"-ldflags", stamp}, packages: []string{
		"cmd/kube-apiserver", "cmd/kube-controller-manager", "cmd/kube-scheduler", "cmd/kube-proxy", "cmd/kubectl", "cmd/kubelet",
		"test/images/agnhost", "test/images/regression-issue-74839", "vendor:github.com/onsi/ginkgo/v2/ginkgo", "test:test/e2e"}},
	{name: "etcd", module: "go.etcd.io/etcd/server/v3", version: "v3.6.16", packages: []string{"as:etcd"}},
	{name: "containerd", module: "github.com/containerd/containerd/v2", version: "v2.3.7", flags: []string{"-tags", "no_btrfs no_devmapper no_zfs"},
		packages: []string{"cmd/containerd", "cmd/containerd-shim-runc-v2", "cmd/ctr"}},
	{name: "cni", module: "github.com/containernetworking/plugins", version: "v1.9.1",
		packages: []string{"plugins/main/ptp", "plugins/main/loopback", "plugins/ipam/host-local", "plugins/meta/portmap"}},
	{name: "coredns", module: "github.com/coredns/coredns", version: "v1.14.3", main: "coredns.go.txt"},
}

// stamp is what the release scripts of Kubernetes set: clients and servers
// compare versions.
const stamp = "-s -w -X k8s.io/component-base/version.gitVersion=v" + kubernetes +
	" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36" +
	" -X k8s.io/component-base/version.gitTreeState=archive -X k8s.io/component-base/version.buildDate=2026-01-01T00:00:00Z"

// build builds all programs and images that are not there yet.
func (l *lab) build() error {
	for _, dir := range []string{"bin", "cni", "images", "modules", "results"} {
		if err := os.MkdirAll(filepath.Join(l.Cache, dir), 0o755); err != nil {
			return err
		}
	}
	for _, c := range components {
		if err := l.buildComponent(c); err != nil {
			return fmt.Errorf("build %s: %w", c.name, err)
		}
	}
	if err := l.buildPause(); err != nil {
		return fmt.Errorf("build pause: %w", err)
	}
	return l.buildImages()
}

func (l *lab) buildComponent(c component) error {
	dir := filepath.Join(l.Cache, "modules", c.name)
	if c.main != "" {
		return l.buildMain(c, dir)
	}
	for _, p := range c.packages {
		out, args := l.target(c, p)
		if exists(out) {
			continue
		}
		if err := l.module(c, dir); err != nil {
			return err
		}
		say("build %s %s", filepath.Base(out), c.version)
		if err := goIn(dir, append(append(args[:len(args)-1], c.flags...), "-o", out, args[len(args)-1])...); err != nil {
			return err
		}
	}
	return nil
}

// target says where a package of a component is built to, and with which
// arguments, the package last.
func (l *lab) target(c component, p string) (out string, args []string) {
	pkg, kind := c.module+"/"+p, "build"
	name := filepath.Base(p)
	switch how, what, _ := strings.Cut(p, ":"); how {
	case "vendor":
		pkg, name = what, filepath.Base(what)
	case "test":
		return l.bin("e2e.test"), []string{"test", "-c", c.module + "/" + what}
	case "as":
		pkg, name = c.module, what
	}
	if c.name == "cni" {
		return filepath.Join(l.Cache, "cni", name), []string{kind, pkg}
	}
	return l.bin(name), []string{kind, pkg}
}

// buildMain builds a program of ours from a module's packages.
func (l *lab) buildMain(c component, dir string) error {
	if exists(l.bin(c.name)) {
		return nil
	}
	if err := l.module(c, dir); err != nil {
		return err
	}
	source, err := files.ReadFile("files/" + c.main)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), source, 0o644); err != nil {
		return err
	}
	say("build %s %s", c.name, c.version)
	return goIn(dir, "build", "-ldflags", "-s -w", "-o", l.bin(c.name), ".")
}

// module writes the go.mod that a component is built in.
func (l *lab) module(c component, dir string) error {
	if exists(filepath.Join(dir, "go.mod")) {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text := fmt.Sprintf("module conformance/%s\n\ngo 1.26.0\n\nrequire %s %s\n", c.name, c.module, c.version)
	if c.name == "kubernetes" {
		source, err := download(c.module, c.version)
		if err != nil {
			return err
		}
		staging, err := stagingReplacements(filepath.Join(source, "go.mod"))
		if err != nil {
			return err
		}
		text += "\ngodebug default=go1.26\n" + staging
	}
	return os.WriteFile(filepath.Join(dir, "go.mod"), []byte(text), 0o644)
}

var stagingModule = regexp.MustCompile(`^\s+(k8s\.io/[a-z0-9-]+) v0\.0\.0( |$)`)

// stagingReplacements are lines of a go.mod. The libraries of Kubernetes have
// no version in its own go.mod, and no source in its zip: the released ones
// stand for them.
func stagingReplacements(gomod string) (string, error) {
	f, err := os.Open(gomod)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var b strings.Builder
	seen := map[string]bool{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if m := stagingModule.FindStringSubmatch(lines.Text()); m != nil && !seen[m[1]] {
			seen[m[1]] = true
			fmt.Fprintf(&b, "replace %s => %s v0.%s\n", m[1], m[1], strings.TrimPrefix(kubernetes, "1."))
		}
	}
	if len(seen) == 0 {
		return "", errors.New(gomod + " names no library of Kubernetes")
	}
	return b.String(), nil
}

// buildPause compiles the program that holds a pod's namespaces, which is C.
func (l *lab) buildPause() error {
	if exists(l.bin("pause")) {
		return nil
	}
	source, err := download("k8s.io/kubernetes", "v"+kubernetes)
	if err != nil {
		return err
	}
	return execute("gcc", "-static", "-Os", "-s", "-o", l.bin("pause"), filepath.Join(source, "build/pause/linux/pause.c"))
}

// download has Go fetch a module and returns where it is.
func download(module, version string) (dir string, err error) {
	out, err := exec.Command("go", "mod", "download", "-json", module+"@"+version).Output()
	if err != nil {
		return "", fmt.Errorf("download %s %s: %w", module, version, err)
	}
	var m struct{ Dir string }
	if err := json.Unmarshal(out, &m); err != nil {
		return "", err
	}
	return m.Dir, nil
}

func goIn(dir string, args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-mod=mod -trimpath -buildvcs=false")
	return output(cmd)
}
