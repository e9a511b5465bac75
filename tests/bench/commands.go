package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
)

// commandVar has this program run a command, and say what that took: a process counts the memory of the one that
// starts it as its own, and this one is small then.
const commandVar = "HEADGATE_BENCH_COMMAND"

// took is what a command took.
type took struct {
	Wall, CPU time.Duration
	Most      float64 // memory, in bytes
}

// runCommand runs a command, and prints what it took.
func runCommand(args []string) error {
	var said strings.Builder
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr = &said
	from := time.Now()
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%q: %w: %s", args, err, said.String())
	}
	t := took{Wall: time.Since(from), CPU: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		t.Most = float64(usage.Maxrss) * 1024
	}
	return json.NewEncoder(os.Stdout).Encode(t)
}

// frontDesk are the commands that somebody waits for.
func frontDesk(dir string) [][]string {
	const one, address = "default/service-00042", "10.96.0.43:80"
	return [][]string{
		{"status"}, {"service", "list"}, {"service", "list", "-o", "wide"}, {"service", "list", "-o", "json"}, {"service", "list", one}, {"service", "show", one},
		{"frontend", "list"}, {"frontend", "list", one}, {"backend", "list"}, {"backend", "list", "-o", "wide"}, {"backend", "list", one}, {"table", "list"},
		{"flow", "list"}, {"affinity", "list"}, {"range", "list"}, {"device", "list"}, {"peer", "list"}, {"map", "list"}, {"problem", "list"},
		{"explain", one}, {"explain", "--from", "192.0.2.9", address}, {"top", "--once", "--interval", "100ms"}, {"diff"},
		{"__complete", "service", "show", "default/service-0004"}, {"sysdump", filepath.Join(dir, "all.tar.gz")},
	}
}

// commandsDevice is one with programs, so that there is something to explain to a client elsewhere.
const commandsDevice = "bench-front"

// commands measures what commands take on a node with many Services, each a process of its own.
func (b *bench) commands() (err error) {
	p, err := b.agentPlace("commands")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close(b)) }()
	l := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: commandsDevice}, PeerName: commandsDevice + "-"}
	if err := netlink.LinkAdd(l); err != nil {
		return fmt.Errorf("make device %s: %w", commandsDevice, err)
	}
	defer func() { err = errors.Join(err, netlink.LinkDel(l)) }()
	if err := b.step("run the agent"); err != nil {
		return err
	}
	agent, _, err := b.startAgent(p, "--devices", commandsDevice)
	if err != nil {
		return err
	}
	defer stopAgent(agent)
	t := table{
		Title: fmt.Sprintf("Commands with %s Services, %d endpoints each", count(b.plan.big), endpointsEach),
		Note: "Medians of processes one after the other, beside an agent at rest: CPU time, time until the end, and the most memory that the process had, with the program itself and the maps that it reads. " +
			"explain loads a program of its own, which the verifier of the kernel looks at; top looks twice, 100 ms apart; diff is mostly the agent's work, which is not counted here.",
		Header: []string{"command", "CPU, ms", "time, ms", "MiB"},
	}
	var slowest, largest float64
	for _, args := range frontDesk(p.dir) {
		if err := b.step("headgate %s", strings.Join(args, " ")); err != nil {
			return err
		}
		cpu, wall, most, err := b.timeCommand(p, args)
		if err != nil {
			return err
		}
		name := strings.ReplaceAll(strings.Join(args, " "), p.dir+"/", "")
		t.row("`headgate "+name+"`", us(cpu), us(wall), us(most))
		b.report.value("commands/"+name+"/cpu", "ms", cpu)
		b.report.value("commands/"+name+"/most", "MiB", most)
		slowest, largest = max(slowest, cpu), max(largest, most)
	}
	b.report.value("commands/slowest", "ms", slowest)
	b.report.value("commands/largest", "MiB", largest)
	b.report.table(t)
	return nil
}

// timeCommand runs a command some times, and returns the medians of what it takes, in ms and MiB.
func (b *bench) timeCommand(p *agentPlace, args []string) (cpu, wall, most float64, err error) {
	var all [3][]float64
	for range max(b.plan.starts, 3) {
		cmd := exec.Command("/proc/self/exe", append([]string{p.binary, "--bpf-root", p.group.root, "--state-dir", p.state()}, args...)...)
		cmd.Env, cmd.Stderr = append(cleanEnv(), commandVar+"=1"), os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return 0, 0, 0, err
		}
		var t took
		if err := json.Unmarshal(out, &t); err != nil {
			return 0, 0, 0, err
		}
		all[0], all[1], all[2] = append(all[0], ms(t.CPU)), append(all[1], ms(t.Wall)), append(all[2], t.Most/(1<<20))
	}
	return summary(all[0]).Median, summary(all[1]).Median, summary(all[2]).Median, b.ctx.Err()
}
