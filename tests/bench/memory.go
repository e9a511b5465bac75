package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/headgate/headgate/pkg/datapath"
)

// memory measures what the kernel and the agent need for many Services. The
// agent is the real one, in a process of its own.
func (b *bench) memory() (err error) {
	p, err := b.agentPlace("memory")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close(b)) }()
	if err := b.step("run the agent"); err != nil {
		return err
	}
	a, err := b.runAgent(p)
	if err != nil {
		return err
	}
	t, err := b.memoryTable(p.group, a)
	if err != nil {
		return err
	}
	b.report.table(t)
	return nil
}

// agentPlace is what an agent needs that is a process: its program, files of many Services and a node.
type agentPlace struct {
	dir, binary, manifests string
	group                  *group
}

func (b *bench) agentPlace(name string) (p *agentPlace, err error) {
	dir, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		return nil, err
	}
	p = &agentPlace{dir: dir, manifests: filepath.Join(dir, "manifests")}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if p.binary, err = b.buildAgent(dir); err != nil {
		return nil, err
	}
	if err := os.Mkdir(p.manifests, 0o755); err != nil {
		return nil, err
	}
	if err := writeManifests(p.manifests, b.plan.big); err != nil {
		return nil, err
	}
	p.group, err = b.emptyNode(name)
	return p, err
}

func (p *agentPlace) close(b *bench) error {
	return errors.Join(b.drop(p.group), os.RemoveAll(p.dir))
}

// state is the directory that the agent keeps what outlives it in.
func (p *agentPlace) state() string { return filepath.Join(p.dir, "state") }

// buildAgent builds the agent in a directory, as it ships.
func (b *bench) buildAgent(dir string) (string, error) {
	if b.agent != "" {
		return filepath.Abs(b.agent)
	}
	if err := b.step("build the agent"); err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "headgate")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", binary, "./cmd/headgate")
	build.Dir, build.Stderr = b.repo, os.Stderr
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("build the agent: %w", err)
	}
	return binary, nil
}

// agentFigures are of the agent's process, in bytes.
type agentFigures struct {
	ready        time.Duration
	resident     float64 // when it has come to rest
	residentPeak float64
	binary       float64
}

// runAgent runs the agent until it has come to rest and returns its figures.
func (b *bench) runAgent(p *agentPlace) (f agentFigures, err error) {
	cmd, ready, err := b.startAgent(p)
	if err != nil {
		return f, err
	}
	defer stopAgent(cmd)
	f.ready = ready
	if info, err := os.Stat(p.binary); err == nil {
		f.binary = float64(info.Size())
	}
	time.Sleep(4 * time.Second) // the sweep, and the runtime gives back memory
	f.resident, f.residentPeak = statusKiB(cmd.Process.Pid, "VmRSS"), statusKiB(cmd.Process.Pid, "VmHWM")
	return f, nil
}

// startAgent starts the agent, and returns once all is in force, with how long that took.
func (b *bench) startAgent(p *agentPlace, flags ...string) (*exec.Cmd, time.Duration, error) {
	cmd := exec.Command(p.binary, append([]string{"--bpf-root", p.group.root, "--state-dir", p.state(), "agent", "--manifests", p.manifests, "--node-name", "node-a", "--cgroup", p.group.path}, flags...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Env = cleanEnv()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, 0, err
	}
	from := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, 0, err
	}
	ready := make(chan error, 1)
	go func() {
		lines := bufio.NewScanner(stderr)
		said := fmt.Errorf("the agent said nothing")
		for lines.Scan() {
			said = fmt.Errorf("the agent ended: %s", lines.Text())
			if strings.Contains(lines.Text(), "ready") {
				ready <- nil
			}
		}
		ready <- said
	}()
	select {
	case err = <-ready:
	case <-b.ctx.Done():
		err = b.ctx.Err()
	case <-time.After(time.Minute):
		err = fmt.Errorf("the agent was not ready within a minute")
	}
	if err != nil {
		stopAgent(cmd)
	}
	return cmd, time.Since(from), err
}

func stopAgent(cmd *exec.Cmd) {
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_ = cmd.Wait() // what was measured stands
}

// statusKiB returns a field of /proc/PID/status in bytes, 0 if it is not there.
func statusKiB(pid int, field string) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			kib, _ := strconv.ParseFloat(strings.Fields(value)[0], 64)
			return kib * 1024
		}
	}
	return 0
}

// memoryTable reads the sizes of what the agent has left pinned.
func (b *bench) memoryTable(g *group, a agentFigures) (table, error) {
	t := table{
		Title:  fmt.Sprintf("Memory for %s Services, %d endpoints each", count(b.plan.big), endpointsEach),
		Note:   "Maps by the kernel's own figure (memlock). They double when they grow, so that some room is always unused. The agent reads the Services from YAML files.",
		Header: []string{"what", "entries", "room for", "KiB", "bytes per Service"},
	}
	i, err := datapath.Inspect(g.root)
	if err != nil {
		return t, err
	}
	defer i.Close()
	totals, err := i.Totals()
	if err != nil {
		return t, err
	}
	if n := totals.Frontends; n != b.plan.big {
		return t, fmt.Errorf("the maps hold %d frontends of %d Services", n, b.plan.big)
	}
	counts, err := i.CountEntries()
	if err != nil {
		return t, err
	}
	infos, err := i.Maps(totals, counts)
	if err != nil {
		return t, err
	}
	growing, slots := b.mapRows(&t, infos), 4*float64(totals.Slots)
	for _, v := range []struct {
		name, key string
		bytes     float64
	}{
		{"all maps that grow with Services", "maps", growing},
		{"of that slots in use by tables", "slots", slots},
		{"agent, resident at rest", "resident", a.resident},
		{"agent, resident at most", "resident_peak", a.residentPeak},
	} {
		each := v.bytes / float64(b.plan.big)
		t.row(v.name, "", "", kib(v.bytes), fmt.Sprintf("%.0f", each))
		b.report.value("memory/"+v.key, "B", v.bytes)
		b.report.value("memory/"+v.key+"_per_service", "B", each)
	}
	b.report.value("memory/binary", "B", a.binary)
	b.report.value("memory/agent_ready", "ms", ms(a.ready))
	t.Note += fmt.Sprintf(" From the start of its process until it was ready it took %.0f ms.", ms(a.ready))
	return t, nil
}

// mapRows adds a line for each map, and returns the bytes of those that grow
// with Services.
func (b *bench) mapRows(t *table, infos []datapath.MapInfo) (growing float64) {
	var fixed float64
	for _, m := range infos {
		bytes, each := float64(m.Bytes), "fixed"
		if slices.Contains([]string{"addresses", "backends", "fallbacks", "frontends", "services", "slots"}, m.Name) {
			growing += bytes
			each = fmt.Sprintf("%.0f", bytes/float64(b.plan.big))
		} else {
			fixed += bytes
		}
		entries := "-"
		if m.Entries != nil {
			entries = count(int(*m.Entries))
		}
		t.row("map "+m.Name, entries, count(int(m.MaxEntries)), kib(bytes), each)
	}
	b.report.value("memory/fixed", "B", fixed)
	return growing
}

func kib(bytes float64) string { return fmt.Sprintf("%.0f", bytes/1024) }
