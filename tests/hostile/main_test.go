// Package hostile_test attacks a node as those may who share it or reach it, while
// others use it, and fails if an attacker gets anything:
//
//	outside ──(the wire)── node-a ──┬── web-1, web-2   the victim's backends
//	                                ├── client         the victim's client
//	                                └── tenant         the attacker's pod
//
// Outside, client and node connect to the victim's Service all the time. The attackers
// are an unprivileged process in a pod, a sender of forged frames outside, and a tenant
// who writes Services.
package hostile_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/headgate/headgate/pkg/traffic/load"
	"github.com/headgate/headgate/tests/testenv"
)

// asRole makes this binary something else than the tests: what roles lists.
const asRole = "HEADGATE_TEST_AS"

// roles are what processes of the tests do, by the value of asRole.
var roles = map[string]func() error{
	"client":  func() error { return load.Serve(context.Background(), os.Stdin, os.Stdout) },
	"bound":   connectBound,
	"refused": connectRefused,
	"connect": connectOnce,
	"talk":    talk,
}

func TestMain(m *testing.M) {
	role, known := roles[os.Getenv(asRole)]
	if !known {
		os.Exit(testenv.Main(m))
	}
	if err := role(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
