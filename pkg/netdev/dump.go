package netdev

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// dumpTries is how often a list is read that changes while it is being read.
const dumpTries = 20

// dump reads a list from the kernel. Where it changes meanwhile the kernel says
// so, and it is read again: pods come and go all the time. Where it never stands
// still the last reading has to do, since the next change is told anyway.
func dump[T any](read func() ([]T, error)) (list []T, err error) {
	for range dumpTries {
		if list, err = read(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return list, err
		}
	}
	return list, nil
}
