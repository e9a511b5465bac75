package datapath

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"slices"
	"time"
)

// MarkAlive notes that an agent has the pins below root now: the next one who looks may
// find it dead. It is the time of the directory, which is in memory.
func MarkAlive(root string, now time.Time) error { return os.Chtimes(root, now, now) }

// LastAlive returns when an agent had the pins below root last; the zero time where there
// are none.
func LastAlive(root string) (time.Time, error) {
	info, err := os.Stat(root)
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// Serves says whether what an earlier process put in force still is, and works on maps of which
// this one goes on: every program of sockets, and those of the devices that are there.
func (d *Datapath) Serves() bool {
	if !d.isAttached() && len(d.flowsOf) == 0 {
		return false // the maps are new, or were reset
	}
	cgroup := cgroupID(d.cfg.Cgroup)
	for _, h := range socketHooks(d.object.traced) {
		if info, err := pinnedLink(d.cfg.Root, h.program); err != nil || !h.isOf(info, cgroup) {
			return false
		}
	}
	pins, err := os.ReadDir(d.path("links"))
	return err == nil && !slices.ContainsFunc(pins, func(pin os.DirEntry) bool { return d.isDetached(pin.Name()) })
}

// isDetached says whether a pin is of a program that is in force no more on a device that is there.
func (d *Datapath) isDetached(pin string) bool {
	_, index, ok := devicePinOf(pin)
	if !ok {
		return false
	}
	info, err := pinnedLink(d.cfg.Root, pin)
	if err == nil && isOfDevice(info, index) {
		return false
	}
	_, err = net.InterfaceByIndex(int(index))
	return err == nil
}
