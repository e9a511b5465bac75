// Command kubectl-headgate is kubectl headgate: headgate on a node of a cluster.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/headgate/headgate/pkg/kubectl"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := kubectl.Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
