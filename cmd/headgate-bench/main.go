// Command headgate-bench sends traffic to load balancers and measures what
// comes of it.
package main

import (
	"os"

	"github.com/headgate/headgate/pkg/traffic/cli"
)

// version is set by the linker.
var version = "unknown"

func main() {
	os.Exit(cli.Run(os.Args[1:], version, os.Stdout, os.Stderr))
}
