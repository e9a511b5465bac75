package e2e

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/headgate/headgate/pkg/cli"
	"github.com/headgate/headgate/pkg/traffic/load"
	"github.com/headgate/headgate/tests/testenv"
)

// What this binary is when it runs itself again.
const (
	asHeadgate = "HEADGATE_TEST_AS_HEADGATE"
	asClient   = "HEADGATE_TEST_AS_CLIENT"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(asHeadgate) != "":
		os.Exit(cli.Run(os.Args[1:], "test", os.Stdout, os.Stderr))
	case os.Getenv(asClient) != "":
		if err := load.Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(testenv.Main(&suite{m}))
}

// suite is all tests with the world that they share.
type suite struct{ *testing.M }

// Run implements testenv.Runner. A run that was to be privileged and tested
// nothing has failed.
func (s *suite) Run() int {
	code := s.M.Run()
	if err := theWorld.close(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e: take down the control plane:", err)
		code = max(code, 1)
	}
	if os.Getenv("HEADGATE_REQUIRE_PRIVILEGED") != "" && theWorld.stages == 0 {
		fmt.Fprintln(os.Stderr, "e2e: no test has run against the control plane")
		code = max(code, 1)
	}
	return code
}
