package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// say tells whoever waits what happens.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// execute runs a program to its end. What it said is part of the error.
func execute(argv ...string) error { return output(exec.Command(argv[0], argv[1:]...)) }

func output(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}

// executeAll runs one line after the other, split at blanks.
func executeAll(lines ...string) error {
	for _, line := range lines {
		if line == "" {
			continue
		}
		if err := execute(strings.Fields(line)...); err != nil {
			return err
		}
	}
	return nil
}

// process is a program that is there as long as the cluster is.
type process struct {
	name string
	pid  int
	done chan error // has what it ended with
}

// start begins a program; its output goes to a file of the run. It ends with
// the namespace of process IDs, at the latest.
func (l *lab) start(name string, argv ...string) (*process, error) {
	log, err := os.Create(l.in("log", name))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return begin(name, cmd)
}

func begin(name string, cmd *exec.Cmd) (*process, error) {
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &process{name: name, pid: cmd.Process.Pid, done: make(chan error, 1)}
	go func() { p.done <- cmd.Wait() }()
	return p, nil
}

// alive returns an error if the program has ended.
func (p *process) alive() error {
	select {
	case err := <-p.done:
		p.done <- err
		return fmt.Errorf("%s has ended: %v", p.name, err)
	default:
		return nil
	}
}

// eventually waits until try succeeds, as long as the programs run.
func eventually(what string, limit time.Duration, running []*process, try func() error) error {
	began := time.Now()
	for {
		err := try()
		if err == nil {
			say("%s after %.1f s", what, time.Since(began).Seconds())
			return nil
		}
		for _, p := range running {
			if err := p.alive(); err != nil {
				return fmt.Errorf("wait for %s: %w", what, err)
			}
		}
		if time.Since(began) > limit {
			return fmt.Errorf("wait %s for %s: %w", limit, what, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}
