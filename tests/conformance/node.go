package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// startNodes starts the nodes, and waits until Kubernetes takes them for ready.
func (l *lab) startNodes(plane []*process) ([]*process, error) {
	var nodes []*process
	for n := 1; n <= l.Nodes; n++ {
		if err := l.nodeFiles(n); err != nil {
			return nil, err
		}
		if err := l.applyFile("node.yaml", l.nodeFields(n)); err != nil {
			return nil, err
		}
		p, err := l.startNode(n)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, p)
	}
	return nodes, eventually("the nodes are ready", 10*time.Minute, append(plane, nodes...), func() error {
		return l.kubectl("", "wait", "--for=condition=Ready", "node", "--all", "--timeout=1s")
	})
}

// nodeFields are what the files of a node are rendered with.
func (l *lab) nodeFields(n int) map[string]any {
	runc, _ := exec.LookPath("runc")
	return map[string]any{
		"Dir": l.in(nodeName(n)), "Name": nodeName(n), "IP": nodeIP(n), "DNS": dnsIP, "Runc": runc, "Dual": l.Dual,
		"Pods": pods(n), "Pods6": pods6(n), "CNI": filepath.Join(l.Cache, "cni"),
		"CA": l.pki("ca.crt"), "Cert": l.pki(nodeName(n) + ".crt"), "Key": l.pki(nodeName(n) + ".key"),
		"Zone": string(rune('a' + (n-1)%3)),
	}
}

func (l *lab) nodeFiles(n int) error {
	dir := l.in(nodeName(n))
	for _, sub := range []string{"kubelet", "containerd", "log", "cni", "sysctl"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	var errs []error
	for name, path := range map[string]string{"kubelet.yaml": "kubelet.yaml", "containerd.toml": "containerd.toml", "cni.json": "cni/10-lab.conflist"} {
		errs = append(errs, l.render(name, filepath.Join(dir, path), l.nodeFields(n)))
	}
	// Names outside of the cluster are nobody's. Images that the lab does not
	// have are refused at once, and not when a DNS server has kept silent.
	errs = append(errs, os.WriteFile(filepath.Join(dir, "resolv.conf"), nil, 0o644),
		os.WriteFile(filepath.Join(dir, "node-resolv.conf"), []byte("nameserver 127.0.0.1\n"), 0o644))
	return errors.Join(errs...)
}

// node is the first process of a node. It is started twice: to enter its
// control group, and then in the namespace that makes this group the root.
func node(run, number string) error {
	l, err := load(run)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	if os.Getenv("CONFORMANCE_NODE") == "" {
		return l.enterCgroups(n)
	}
	if err := l.mounts(n); err != nil {
		return fmt.Errorf("mounts: %w", err)
	}
	if err := l.nodeNetwork(n); err != nil {
		return fmt.Errorf("network: %w", err)
	}
	if err := syscall.Sethostname([]byte(nodeName(n))); err != nil {
		return err
	}
	return l.runNode(n)
}

func (l *lab) enterCgroups(n int) error {
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil { // until the cable is there
		return err
	}
	// The process has its own IDs, and /proc is that of its parent's.
	if err := syscall.Mount("", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, ""); err != nil {
		return err
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	if err := joinCgroups(l.cgroup(nodeName(n))); err != nil {
		return err
	}
	// It is the thread that gets the namespace, and the thread that goes on as
	// the new program.
	runtime.LockOSThread()
	if err := syscall.Unshare(syscall.CLONE_NEWCGROUP); err != nil {
		return err
	}
	return syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), "CONFORMANCE_NODE=1"))
}

// mounts gives the node what a machine of its own would have.
func (l *lab) mounts(n int) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	dir := l.in(nodeName(n))
	lines := []string{"mount -t sysfs sysfs /sys"}
	if len(all) > 1 {
		lines = append(lines, "mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup")
	}
	for _, h := range all {
		switch {
		case h.unified:
			lines = append(lines, "mkdir -p "+h.mount, "mount -t cgroup2 cgroup2 "+h.mount)
		default:
			lines = append(lines, "mkdir -p "+h.mount, "mount -t cgroup -o "+h.options+" cgroup "+h.mount)
		}
	}
	lines = append(lines,
		"mount -t bpf bpf /sys/fs/bpf",
		"mount -t tmpfs -o mode=755 tmpfs /run", "mkdir /run/lock",
		"mount -t tmpfs -o mode=755 tmpfs /var/lib", "mkdir /var/lib/kubelet", "mount --bind "+dir+"/kubelet /var/lib/kubelet",
		"mount --bind "+dir+"/log /var/log",
		"mount --bind "+dir+"/node-resolv.conf /etc/resolv.conf",
		"mount --make-rshared /")
	if err := executeAll(lines...); err != nil {
		return err
	}
	if len(all) == 1 {
		if err := leaveRootGroup(all[0]); err != nil {
			return err
		}
	}
	return hideSysctls(dir)
}

// leaveRootGroup moves this process to a group below the node's: with cgroup2
// alone, the kubelet could not divide the node's otherwise.
func leaveRootGroup(h hierarchy) error {
	if err := os.Mkdir(filepath.Join(h.mount, "init"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(h.mount, "init", "cgroup.procs"), []byte("1"), 0o644); err != nil {
		return err
	}
	delegate(h.mount)
	return nil
}

// hideSysctls gives the kubelet files in place of settings that are the whole
// machine's, and which it insists on.
func hideSysctls(dir string) error {
	for name, value := range map[string]string{"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10",
		"kernel/panic_on_oops": "1", "kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000"} {
		file := filepath.Join(dir, "sysctl", filepath.Base(name))
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := execute("mount", "--bind", file, "/proc/sys/"+name); err != nil {
			return err
		}
	}
	return nil
}

// runNode starts containerd and the kubelet and waits for the end of either.
func (l *lab) runNode(n int) error {
	dir := l.in(nodeName(n))
	if err := os.Setenv("PATH", l.bin("")+":"+os.Getenv("PATH")); err != nil {
		return err
	}
	containerd, err := l.daemon(nodeName(n)+"-containerd", l.bin("containerd"), "--config", filepath.Join(dir, "containerd.toml"))
	if err != nil {
		return err
	}
	if err := l.importImages(); err != nil {
		return err
	}
	ip := l.families(nodeIP(n), nodeIP6(n))
	kubelet, err := l.daemon(nodeName(n)+"-kubelet", l.bin("kubelet"), "--config", filepath.Join(dir, "kubelet.yaml"),
		"--kubeconfig", l.in(nodeName(n)+".kubeconfig"), "--hostname-override", nodeName(n), "--node-ip", ip)
	if err != nil {
		return err
	}
	// The first process inherits the orphans of its namespace.
	for {
		pid, err := syscall.Wait4(-1, nil, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return err
		case pid == containerd || pid == kubelet:
			return fmt.Errorf("containerd or the kubelet has ended, see %s", l.in("log"))
		}
	}
}

// daemon starts a program that nobody but the loop of runNode waits for.
func (l *lab) daemon(name string, argv ...string) (pid int, err error) {
	log, err := os.Create(l.in("log", name))
	if err != nil {
		return 0, err
	}
	defer log.Close()
	p, err := os.StartProcess(argv[0], argv, &os.ProcAttr{Files: []*os.File{nil, log, log}, Env: os.Environ()})
	if err != nil {
		return 0, err
	}
	return p.Pid, nil
}

func (l *lab) importImages() error {
	ctr := []string{l.bin("ctr"), "--address", "/run/containerd/containerd.sock", "--namespace", "k8s.io"}
	if err := eventually("containerd answers", 5*time.Minute, nil, func() error {
		return execute(append(ctr, "version")...)
	}); err != nil {
		return err
	}
	archives, err := filepath.Glob(filepath.Join(l.Cache, "images", "*.tar"))
	if err != nil {
		return err
	}
	if l.Image != "" {
		archives = append(archives, l.Image)
	}
	for _, a := range archives {
		if err := execute(append(ctr, "images", "import", a)...); err != nil {
			return err
		}
	}
	return nil
}
