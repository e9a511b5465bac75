package testenv

import (
	"io"
	"net"
	"testing"

	"github.com/headgate/headgate/pkg/datapath"
)

// Status returns what is said of the datapath below a root, whether an agent runs or not.
func Status(tb testing.TB, root string) datapath.Status {
	tb.Helper()
	i, err := datapath.Inspect(root)
	if err != nil {
		tb.Fatal(err)
	}
	defer i.Close()
	s, err := i.Status()
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// Echo sends back what comes by connections, until the test ends.
func Echo(tb testing.TB, l net.Listener) {
	tb.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
}
