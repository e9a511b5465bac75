// Built prints where a program of Kubernetes is that package controlplane builds:
// built KUBE-PROGRAM builds it first unless it is there, which takes minutes; with
// -cached it prints nothing if it is not there.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/headgate/headgate/tests/controlplane"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "built:", err)
		os.Exit(1)
	}
}

func run() error {
	cached := flag.Bool("cached", false, "do not build it")
	flag.Parse()
	if flag.NArg() != 1 {
		return fmt.Errorf("name one program, such as %s", controlplane.KubeProxy)
	}
	name := flag.Arg(0)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dir, ok := controlplane.Cached(ctx, name)
	switch {
	case !ok && *cached:
		return nil
	case !ok:
		var err error
		if dir, err = controlplane.Build(ctx, os.Stderr, name); err != nil {
			return err
		}
	}
	_, err := fmt.Println(filepath.Join(dir, name))
	return err
}
