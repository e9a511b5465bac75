// Built prints where programs of Kubernetes are that package controlplane builds:
// built NAME... builds first what is not there, which takes minutes; with -cached it
// prints nothing if one of them is not there.
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
	names := flag.Args()
	if len(names) == 0 {
		return fmt.Errorf("name what to build, such as %s", controlplane.KubeProxy)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dir, err := controlplane.Built(ctx, names...)
	switch {
	case err != nil && *cached:
		return nil
	case err != nil:
		if dir, err = controlplane.Build(ctx, os.Stderr, names...); err != nil {
			return err
		}
	}
	for _, name := range names {
		fmt.Println(filepath.Join(dir, name))
	}
	return nil
}
