package cli

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Who reads a list cannot know what an agent that hangs would have said.
func TestThatTheAgentIsLateIsSaidOnce(t *testing.T) {
	var said strings.Builder
	e := &env{state: t.TempDir(), complaints: &said}
	ask := func() {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		e.until = ctx
		if told := e.told(); told != nil {
			t.Errorf("told %v by nobody", told)
		}
	}
	ask()
	if said.Len() > 0 {
		t.Errorf("of no agent: %q: that is no fault", said.String())
	}
	l, err := net.Listen("unix", filepath.Join(e.state, "agent.sock")) // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ask()
	ask()
	const lack = "; READY, states, Pods, nodes and zones of backends are unknown\n"
	if got := said.String(); !strings.HasPrefix(got, fmt.Sprintf("agent pid %d has not answered for ", os.Getpid())) || strings.Count(got, "\n") != 1 || !strings.HasSuffix(got, lack) {
		t.Errorf("it says %q, once is to be said: %q", got, lack)
	}
}

// An archive has many questions, and is wanted most where the agent hangs.
func TestAnAgentThatHangsIsWaitedForOnceByASysdump(t *testing.T) {
	e := &env{state: t.TempDir()}
	ctx, cancel := patience(t.Context(), e)
	defer cancel()
	if at, ends := ctx.Deadline(); ends {
		t.Errorf("without an agent questions end at %v", at)
	}
	l, err := net.Listen("unix", filepath.Join(e.state, "agent.sock")) // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel = patience(t.Context(), e)
	defer cancel()
	if _, ends := ctx.Deadline(); !ends {
		t.Error("questions to an agent that hangs do not end")
	}
}
