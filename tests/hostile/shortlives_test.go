package hostile_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/datapath"
)

// TestStartsThatAreCutOffGetOn kills each agent of a node that had none before after half the time of a first start. Each
// goes on from what the one before has left, so that sockets and devices are balanced in the end, without an agent. The
// agents have programs verified one by one: on all machines that is most of a start.
func TestStartsThatAreCutOffGetOn(t *testing.T) {
	s := newStage(t, manifests)
	s.addVictims()
	inNamespace := s.agent.Run
	s.agent.Run = func(cmd *exec.Cmd) error {
		cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
		return inNamespace(cmd)
	}
	began := s.launchFirst()
	<-s.agent.Ready
	whole := time.Since(began)
	s.launchFirst()
	const starts = 25
	for range starts {
		time.Sleep(whole / 2)
		s.agent.Kill()
		s.agent.Launch()
	}
	s.agent.Kill()
	if log := s.agent.Log.String(); strings.Contains(log, "inconsistent") {
		t.Error("an agent found maps that it could not take over")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if h := s.connect(ctx); h.failed > 0 || h.answered == 0 {
		t.Errorf("after %d starts of %v where a whole one takes %v: %d connections failed, %d were answered: %v", starts, whole/2, whole, h.failed, h.answered, h.examples)
	}
}

// launchFirst launches an agent with nothing of those before it in the kernel.
func (s *stage) launchFirst() (began time.Time) {
	s.tb.Helper()
	s.agent.Kill()
	if err := datapath.Cleanup(s.agent.Root); err != nil {
		s.tb.Fatal(err)
	}
	began = time.Now()
	s.agent.Launch()
	return began
}
