package agent

import (
	"errors"
	"strconv"
	"syscall"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
)

// descriptors is how many file descriptors this process has open, and how many it may have.
// The runtime of Go raises the soft limit to the hard one.
type descriptors struct{ open, limit uint64 }

func readDescriptors() (d descriptors, err error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return d, err
	}
	d.limit = limit.Cur
	self, err := procfs.Self()
	if err != nil {
		return d, err
	}
	open, err := self.FileDescriptorsLen()
	if errors.Is(err, syscall.EMFILE) { // before Linux 6.2 the count takes a descriptor
		return descriptors{d.limit, d.limit}, nil
	}
	d.open = uint64(open)
	return d, err
}

// problems returns a problem if less than a tenth is free. Its text has no count, which changes all the time.
func (d descriptors) problems(node string) []lb.Problem {
	if d.open <= d.limit-d.limit/10 {
		return nil
	}
	return []lb.Problem{{
		Scope: lb.ScopeNode, Object: "Node " + node, Field: "file descriptors of the agent", Value: strconv.FormatUint(d.limit, 10),
		Reason: "less than 10 % of them are free; without any the agent follows no changes and answers no health checks",
		Remedy: "list them in /proc/PID/fd of the agent and end their cause, or raise the limit: LimitNOFILE in the systemd unit, or in that of the container runtime",
	}}
}
