// Command headgate balances Kubernetes Services in the kernel.
package main

import (
	"os"

	"github.com/headgate/headgate/pkg/cli"
)

// version is set by the linker.
var version = "unknown"

func main() {
	os.Exit(cli.Run(os.Args[1:], version, os.Stdout, os.Stderr))
}
