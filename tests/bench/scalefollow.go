package main

import (
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/headgate/headgate/tests/controlplane"
)

// startFollower starts this program as a client that receives what an agent does and drops it: what
// client-go, Go's runtime and the kernel take of it in any case. It returns when that knows all objects.
func (s *scaled) startFollower() (*controlplane.Process, error) {
	const name = "follow"
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(cleanEnv(), decodeVar+"="+s.kubeconfig(), followVar+"=1")
	p, err := controlplane.StartProcess(s.node(), nil, s.dir, name, cmd)
	if err != nil {
		return nil, err
	}
	for _, path := range []string{"services", "endpointslices"} {
		if err := s.awaitLine(p, filepath.Join(s.dir, name+".log"), "knows all "+path); err != nil {
			p.Kill()
			return nil, err
		}
	}
	return p, nil
}

// following compares the CPU time of the agent with that of a client which does nothing with the same
// changes in the same seconds.
func (r *driver) following(c shape, all []*follower, t *table) error {
	f, err := r.startFollower()
	if err != nil {
		return err
	}
	defer f.Kill()
	k := course{name: "1,000 a second, beside a client that drops them", key: "beside", count: 1000 * int(min(r.plan.steady, restTime).Seconds()), rate: 1000}
	took, err := spends(f, func() error { return r.row(c, k, all, t) })
	if err != nil {
		return err
	}
	each := took / float64(k.count) * 1e6
	r.report.value(c.key()+"following/cpu_each", "µs", each)
	r.report.value(c.key()+"times_following", "×", r.report.Figures[c.key()+k.key+"/cpu_each"].Median/each)
	t.row(c.String(), fmt.Sprintf("the client that drops them, %s", count(k.count)), "", "", "", "", tenth(each/10), us(each))
	return nil
}
