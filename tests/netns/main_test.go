// Package netns_test proves with real sockets, against the real kernel, what
// Headgate promises to those who connect: each family and protocol, restarts,
// growth and upgrades under traffic, and that nothing is left behind.
package netns_test

import (
	"os"
	"testing"

	"github.com/headgate/headgate/tests/testenv"
)

func TestMain(m *testing.M) {
	os.Exit(testenv.Main(m))
}
