package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

// What the tests of packets are asked for here: more than in a usual run.
const (
	heldConnections = 60_000
	floodPackets    = 1_000_000
)

// fairFigure is a figure in what a test says.
var fairFigure = regexp.MustCompile(`figure (\w+) (\d+)`)

// fair has the tests of packets say how many connections one client holds to one remote
// backend, and how many idle ones floods and guesses end.
func (b *bench) fair() error {
	dir, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := b.step("build the tests of packets"); err != nil {
		return err
	}
	binary, at := filepath.Join(dir, "packets.test"), filepath.Join(b.repo, "tests", "packets")
	build := exec.CommandContext(b.ctx, "go", "test", "-c", "-o", binary, ".")
	build.Dir, build.Stderr = at, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build the tests of packets: %w", err)
	}
	if err := b.step("run them"); err != nil {
		return err
	}
	run := exec.CommandContext(b.ctx, binary, "-test.v", "-test.timeout=15m", "-test.run", "^(TestOneClientHasAllPorts|TestIdleConnectionsOutliveFloods|TestForgedEndsLoseNoIdleConnection)$")
	run.Dir = at
	run.Env = append(cleanEnv(), "HEADGATE_REQUIRE_PRIVILEGED=1", fmt.Sprintf("HEADGATE_HELD=%d", heldConnections), fmt.Sprintf("HEADGATE_FLOOD=%d", floodPackets))
	out, failed := run.CombinedOutput()
	t := table{
		Title:  "Connections that others want to push out",
		Header: []string{"what", "connections"},
		Note: fmt.Sprintf("By the tests of packets, which run the programs by BPF_PROG_TEST_RUN: one client begins %s connections to one backend on another node; and 1,000 connections say nothing for two hours, in the smallest table, while strangers send %s packets: datagrams that are answered and come again, SYNs and fragments. Then 2,000 connections get resets and FINs with guessed sequence numbers, two of them each of the 65,536 guesses that there are, and a flood of SYNs.",
			count(heldConnections), count(floodPackets)),
	}
	names := map[string]string{"held_connections": "one client holds to one remote backend", "lost_idle_connections": "idle ones of 1,000 that are lost to floods", "lost_to_guesses": "idle ones of 2,000 that are lost to guessed ends"}
	for _, m := range fairFigure.FindAllSubmatch(out, -1) {
		v, err := strconv.Atoi(string(m[2]))
		if err != nil {
			return err
		}
		b.report.value("fair/"+string(m[1]), "", float64(v))
		t.row(names[string(m[1])], count(v))
	}
	if len(t.Rows) != len(names) {
		return fmt.Errorf("the tests of packets say %d of %d figures (%v): %s", len(t.Rows), len(names), failed, out)
	}
	b.report.table(t)
	return nil
}
