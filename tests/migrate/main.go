// Command migrate is the drill of headgate migrate: three nodes, with a real API server and
// the real kube-proxy, go from kube-proxy to Headgate and back, under load and while every
// backend is replaced over and over. It prints what failed, was reset or late, for each kind
// of load and each step, and fails if any is not 0.
//
//	go run ./tests/migrate [-mode iptables] [-pace 3s]
//
// Nodes are network namespaces with a cgroup each, pods are network namespaces behind them;
// there are no kubelets. It takes root, and what make control-plane kube-proxy builds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"time"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == asLoads {
		if err := serveLoads(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "loads:", err)
			os.Exit(1)
		}
		return
	}
	if err := command(); err != nil {
		fmt.Fprintln(os.Stderr, "migrate:", err)
		os.Exit(1)
	}
}

// modes are those of kube-proxy that are tried.
var modes = []string{"iptables", "nftables"}

func command() error {
	mode := flag.String("mode", "", "mode of kube-proxy, iptables or nftables (default: one after the other)")
	pace := flag.Duration("pace", 3*time.Second, "how long each step lasts at least")
	rate := flag.Float64("rate", 10, "operations a second of each load")
	flag.Parse()
	wanted := modes
	if *mode != "" {
		wanted = []string{*mode}
	}
	if !slices.Contains(modes, wanted[0]) {
		return fmt.Errorf("mode %s: there are %q", wanted[0], modes)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	programs, err := findPrograms(ctx)
	if err != nil {
		return err
	}
	defer os.RemoveAll(programs.own)
	bad := false
	for _, mode := range wanted {
		d := &drill{mode: mode, pace: *pace, rate: *rate, programs: programs}
		err := d.run(ctx)
		bad = d.report(os.Stdout) || bad
		if err != nil {
			return fmt.Errorf("mode %s: %w", mode, err)
		}
	}
	if bad {
		return errors.New("something failed, was reset or late: the tables say what, and in which step")
	}
	return nil
}
