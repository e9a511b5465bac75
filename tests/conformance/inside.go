package main

import (
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"text/template"
	"time"
)

//go:embed files
var files embed.FS

// render writes a file from one of files/.
func (l *lab) render(name, path string, data any) error {
	t, err := template.ParseFS(files, "files/"+name)
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(t.Execute(f, data), f.Close())
}

// inside is the first process of the namespaces of a cluster. Its network is
// the world outside of the nodes: the API server is here, and the clients of
// load balancers.
func inside(run string) error {
	l, err := load(run)
	if err != nil {
		return err
	}
	if err := private(); err != nil {
		return err
	}
	if err := l.outside(); err != nil {
		return err
	}
	plane, err := l.controlPlane()
	if err != nil {
		return fmt.Errorf("control plane: %w", err)
	}
	nodes, err := l.startNodes(plane)
	if err != nil {
		return fmt.Errorf("nodes: %w", err)
	}
	go l.balance()
	proxies, err := l.startProxies(nodes)
	if err != nil {
		return fmt.Errorf("proxies: %w", err)
	}
	running := append(append(plane, nodes...), proxies...)
	if err := l.applyFile("coredns.yaml", nil); err != nil {
		return err
	}
	if err := eventually("CoreDNS is ready", 5*time.Minute, running, func() error {
		return l.kubectl("", "-n", "kube-system", "rollout", "status", "deploy/coredns", "--timeout=1s")
	}); err != nil {
		return fmt.Errorf("%w: does the proxy serve the Service of the API server?", err)
	}
	if l.Hold {
		say("until interrupted: conformance enter -name %s outside kubectl get nodes", l.Name)
		select {}
	}
	return l.test(running)
}

// private gives this process mounts of its own, and what goes with its
// namespace of process IDs.
func private() error {
	if err := syscall.Mount("", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	return syscall.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755")
}

// kubectl runs it as administrator, with a standard input.
func (l *lab) kubectl(stdin string, args ...string) error {
	cmd := exec.Command(l.bin("kubectl"), append([]string{"--kubeconfig", l.in("admin.kubeconfig")}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	return output(cmd)
}

// applyFile applies one of files/.
func (l *lab) applyFile(name string, data any) error {
	path := l.in("tmp", name)
	if err := l.render(name, path, data); err != nil {
		return err
	}
	return l.kubectl("", "apply", "-f", path)
}

// startNode begins the first process of a node, in namespaces of its own.
func (l *lab) startNode(number int) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	name := nodeName(number)
	if err := makeCgroups(l.cgroup(name)); err != nil {
		return nil, err
	}
	log, err := os.Create(l.in("log", name))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	gate, open, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer gate.Close()
	defer open.Close()
	cmd := exec.Command(self, "node", l.Run, strconv.Itoa(number))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = gate, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true,
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS}
	p, err := begin(name, cmd)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(l.in(name, "pid"), []byte(strconv.Itoa(p.pid)), 0o644); err != nil {
		return nil, err
	}
	// It waits for its end of the cable, until the pipe is closed.
	return p, l.cable(number, p.pid)
}
