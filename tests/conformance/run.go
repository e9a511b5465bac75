package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// needed are Debian's packages of what is run but not built here.
var needed = map[string]string{
	"runc": "runc", "ip": "iproute2", "nsenter": "util-linux", "iptables": "iptables", "nft": "nftables", "conntrack": "conntrack",
	"/bin/busybox": "busybox-static", "gcc": "gcc", "curl": "curl", "wget": "wget", "nc": "netcat-openbsd", "dig": "bind9-dnsutils", "dash": "dash",
}

func missing() error {
	var errs []error
	for program, pkg := range needed {
		if _, err := exec.LookPath(program); err != nil {
			errs = append(errs, fmt.Errorf("%s is missing: apt-get install %s", program, pkg))
		}
	}
	if os.Geteuid() != 0 {
		errs = append(errs, errors.New("needs root, for namespaces"))
	}
	return errors.Join(errs...)
}

// fewInotify warns of a limit that is one for the whole machine: containerd,
// the kubelet and others take some twenty of them on each node.
func fewInotify() {
	data, err := os.ReadFile("/proc/sys/fs/inotify/max_user_instances")
	if err != nil {
		return
	}
	if n, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil && n < 512 {
		say("a kubelet may end for want of inotify instances, there are %d: sysctl -w fs.inotify.max_user_instances=512", n)
	}
}

// run starts clusters one after the other, one for each shape that the groups
// ask for, and ends them.
func (l *lab) run() error {
	if err := missing(); err != nil {
		return err
	}
	fewInotify()
	if err := l.build(); err != nil {
		return err
	}
	if l.judged().how == byAgent {
		if err := l.buildHeadgate(); err != nil {
			return err
		}
	}
	if l.Hold || l.Focus != "" {
		l.Groups = nil
		return l.cluster()
	}
	var failed error
	for _, s := range shapesOf(l.Groups) {
		l.Nodes, l.Dual, l.Groups = s.nodes, s.dual, s.groups
		failed = errors.Join(failed, l.cluster())
	}
	return failed
}

// headgate is the path of the agent of this run: another may run another one.
func (l *lab) headgate() string { return l.bin("headgate-of-" + l.Name) }

func (l *lab) buildHeadgate() error {
	say("build headgate")
	l.Version = said("git", "-c", "safe.directory=*", "-C", l.Repo, "describe", "--tags", "--always", "--dirty")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", l.headgate(), "./cmd/headgate")
	cmd.Dir, cmd.Env = l.Repo, append(os.Environ(), "CGO_ENABLED=0")
	return output(cmd)
}

// cluster runs one cluster in new namespaces. Whatever happens to this
// process, the kernel ends everything in there: its first process dies with
// its parent, and takes the namespaces with it.
func (l *lab) cluster() (err error) {
	unlock, err := l.prepare()
	if err != nil {
		return err
	}
	defer unlock()
	defer func() {
		if err != nil {
			err = errors.Join(err, l.keepLogs())
		}
		err = errors.Join(err, l.sweep())
	}()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	// The death of a parent is that of the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command(self, "inside", l.Run)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true, Pdeathsig: syscall.SIGKILL,
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := os.WriteFile(l.in("pid"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return err
	case s := <-signals:
		err := errors.Join(fmt.Errorf("ended by signal: %s", s), cmd.Process.Kill())
		return errors.Join(err, <-ended)
	}
}

// keepLogs moves what the programs of a run said to where it stays.
func (l *lab) keepLogs() error {
	kept := filepath.Join(l.Cache, "logs-of-"+l.Name)
	say("logs: %s", kept)
	return errors.Join(os.RemoveAll(kept), os.Rename(l.in("log"), kept))
}

// prepare makes the directories of a run, which nobody else may have.
func (l *lab) prepare() (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(l.Run), 0o755); err != nil {
		return nil, err
	}
	lock, err := os.Create(l.Run + ".lock")
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, fmt.Errorf("a run named %s is under way; give another -name", l.Name)
	}
	if err := l.sweep(); err != nil {
		return nil, err
	}
	for _, dir := range []string{"pki", "log", "tmp"} {
		if err := os.MkdirAll(l.in(dir), 0o755); err != nil {
			return nil, err
		}
	}
	data, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	return func() { _ = lock.Close() }, os.WriteFile(l.in("lab.json"), data, 0o644)
}

// load reads what prepare wrote.
func load(run string) (*lab, error) {
	data, err := os.ReadFile(filepath.Join(run, "lab.json"))
	if err != nil {
		return nil, err
	}
	l := &lab{}
	return l, json.Unmarshal(data, l)
}

// clean removes what is left of a killed run.
func (l *lab) clean() error {
	unlock, err := l.prepare()
	if err != nil {
		return err
	}
	defer unlock()
	return l.sweep()
}

// sweep removes the control groups and the directory of a run.
func (l *lab) sweep() error {
	return errors.Join(l.removeCgroups(), os.RemoveAll(l.Run))
}

// enter runs a command in the namespaces of a run: outside, where the control
// plane and the clients of load balancers are, or on a node.
func (l *lab) enter(args []string) error {
	if len(args) < 2 {
		return errors.New("enter where, and which command?")
	}
	pid, err := os.ReadFile(l.in("pid"))
	if err != nil {
		return fmt.Errorf("no run named %s: %w", l.Name, err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	argv := []string{"nsenter", "--target", string(pid), "--mount", "--net", "--pid", "--"}
	if args[0] != "outside" {
		argv = append(argv, self, "into", l.Run, args[0])
	}
	return become(append(argv, args[1:]...), "KUBECONFIG="+l.in("admin.kubeconfig"), "PATH="+l.bin("")+":"+os.Getenv("PATH"))
}

// into runs a command in the namespaces and the control group of a node.
func into(run, node string, argv []string) error {
	l, err := load(run)
	if err != nil {
		return err
	}
	pid, err := os.ReadFile(l.in(node, "pid"))
	if err != nil {
		return fmt.Errorf("no %s: %w", node, err)
	}
	if err := joinCgroups(l.cgroup(node)); err != nil {
		return err
	}
	return become(append([]string{"nsenter", "--target", string(pid), "--mount", "--net", "--pid", "--uts", "--cgroup", "--"}, argv...))
}

// become goes on as another program.
func become(argv []string, env ...string) error {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	return syscall.Exec(path, argv, append(os.Environ(), env...))
}
