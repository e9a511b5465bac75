// Program man writes the man pages of headgate into a directory.
// Usage: go run ./tests/clidocs/man DIRECTORY
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/headgate/headgate/pkg/cli"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: man DIRECTORY")
		os.Exit(1)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

// write writes pages. Their date is that of $SOURCE_DATE_EPOCH, or today.
func write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"NODE_NAME", "STATE_DIRECTORY"} {
		if err := os.Unsetenv(name); err != nil { // they change defaults
			return err
		}
	}
	top := cli.Command("")
	top.DisableAutoGenTag = true
	keepColumns(top)
	return doc.GenManTree(top, &doc.GenManHeader{Section: "8", Source: "Headgate", Manual: "Headgate"}, dir)
}

// keepColumns has what is indented stand as it is: pages are made by way of Markdown, which would fill its lines.
func keepColumns(c *cobra.Command) {
	lines := strings.Split(c.Long, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "  ") {
			lines[i] = "    " + line
		}
	}
	c.Long = strings.Join(lines, "\n")
	for _, below := range c.Commands() {
		keepColumns(below)
	}
}
