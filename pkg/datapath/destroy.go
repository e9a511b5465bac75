package datapath

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/plan"
)

// ErrNoDestroy says that the kernel cannot destroy sockets of others.
var ErrNoDestroy = fmt.Errorf("this kernel cannot destroy sockets (requires >= 6.5, or CONFIG_INET_DIAG_DESTROY), clients of a deleted backend learn of it by their own time-outs: %w", errors.ErrUnsupported)

// How the sockets of lost backends are told of it, for people.
const (
	ToldByBPF  = "told of lost backends by BPF"
	toldByDiag = "told of lost backends through INET_DIAG, since the kernel cannot destroy sockets from BPF (requires >= 6.5)"
	notTold    = "not told of lost backends: the kernel cannot destroy sockets (requires >= 6.5, or CONFIG_INET_DIAG_DESTROY)"
)

// teller tells sockets of lost backends, in a goroutine of its own. What it needs is kept from
// one time to the next, for the maps that it is of. The zero value keeps nothing.
type teller struct {
	// Held while something is made of the maps and while they are replaced: programs of the
	// former ones would destroy sockets of frontends that only the new ones have.
	mu       sync.Mutex
	slots    *mapping[headgateSocketSlot]
	stored   []byte      // stored_sockets
	unmap    *time.Timer // lets go of both where nothing is lost for a while
	through  iterators   // that destroy sockets, or name them
	mark     iterators   // that mark those which are to connect again
	broken   iterators   // that name these
	named    bool
	places   places
	reported string // to ReportSockets
}

// forget lets go of what is of the maps in use.
func (t *teller) forget() {
	t.through.Close()
	t.mark.Close()
	t.broken.Close()
	t.through, t.mark, t.broken = nil, nil, nil
	t.unmapEntries()
}

// Close ends its work.
func (t *teller) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget()
}

// unmapEntries lets go of what is kept of sockets as memory, 4.5 MiB.
func (t *teller) unmapEntries() {
	t.slots.Close()
	if t.stored != nil {
		_ = unix.Munmap(t.stored) // fails only for memory that is not mapped
	}
	t.slots, t.stored = nil, nil
}

// DestroySockets destroys the sockets with an entry for one of the lost backends, or for any
// backend that was lost if none are given: what they wait for fails with ECONNABORTED, and a
// datagram socket is no longer connected. Before that, connected datagram sockets get another
// backend, or wait for one, as far as they can. It looks at every network namespace in which there
// may be one. It returns ErrNoDestroy where the kernel cannot. It may be called while
// other calls are under way, but not twice at a time.
func (d *Datapath) DestroySockets(losses []plan.Loss) error {
	if err := waitGrace(); err != nil { // a program that chose before the loss has written its entry after it
		return err
	}
	udp, first := udpLosses(losses)
	namespaces, all, err := d.namespacesOf(losses, udp)
	if err != nil || len(namespaces) == 0 && !all && !first {
		return err
	}
	var reconnected error
	refused := false
	if udp {
		reconnected = d.teller.places.visit(namespaces, all, d.markHere)
		refused, err = d.reconnect(false)
		all, reconnected = all || refused, errors.Join(reconnected, err) // one that is older than its frontend may be anywhere
	}
	err = d.teller.places.visit(namespaces, all, d.destroyHere)
	d.reportSockets(err)
	if refused {
		_, left := d.reconnect(true) // those that could not be destroyed
		err = errors.Join(err, left)
	}
	return errors.Join(reconnected, err)
}

// destroyHere does so in the network namespace of the thread.
func (d *Datapath) destroyHere() error {
	t := &d.teller
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.through == nil {
		t.named = d.cfg.Diag || !destroysFromBPF()
		through, err := d.newIterators(destroyers, map[string]any{"name_sockets": t.named})
		if err != nil {
			return err
		}
		t.through = through
	}
	if t.named {
		return runIterators(t.through, destroyNamed)
	}
	return runIterators(t.through, drained)
}

// reportSockets reports how sockets are destroyed, where that is news.
func (d *Datapath) reportSockets(err error) {
	t, how := &d.teller, ToldByBPF
	switch {
	case errors.Is(err, ErrNoDestroy):
		how = notTold
	case t.named:
		how = toldByDiag
	}
	if t.reported != how && d.cfg.ReportSockets != nil {
		d.cfg.ReportSockets(how)
	}
	t.reported = how
}

// destroysFromBPF says whether the kernel lets BPF destroy sockets.
func destroysFromBPF() bool {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return false
	}
	var destroy *btf.Func
	return kernel.TypeByName("bpf_sock_destroy", &destroy) == nil
}

// namespacesOf returns the cookies of the network namespaces with sockets that have an
// entry for a lost backend, or one that waits if these count, or that any may have some. No loss stands for
// all backends.
func (d *Datapath) namespacesOf(losses []plan.Loss, waiting bool) (namespaces map[uint64]bool, all bool, err error) {
	t := &d.teller
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := d.mapEntries(); err != nil {
		return nil, false, err
	}
	lost := map[headgateAddrPort]bool{}
	for _, l := range losses {
		lost[encodeAddrPort(l.Backend)] = true
	}
	namespaces = namespacesOfSlots(t.slots, func(s *headgateSocketSlot) bool {
		return len(lost) == 0 || lost[s.Entry.backend()] || waiting && s.Entry.isWaiting()
	})
	// What sockets keep themselves cannot be looked through from here.
	return namespaces, isAnySet(t.stored), nil
}

// isAnySet says whether memory holds anything but zeros. Counting takes a sixtieth of what trimming does.
func isAnySet(mem []byte) bool { return bytes.Count(mem, []byte{0}) < len(mem) }

// entriesMapped is for how long what is kept of sockets stays memory of this process: mapping it takes
// as long as looking through it, and losses mostly come together.
const entriesMapped = 5 * time.Second

// mapEntries has what is kept of sockets in memory.
func (d *Datapath) mapEntries() (err error) {
	t := &d.teller
	if t.unmap == nil {
		t.unmap = time.AfterFunc(entriesMapped, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.unmapEntries()
		})
	}
	t.unmap.Reset(entriesMapped)
	if t.stored != nil {
		return nil
	}
	if t.slots, err = newMapping[headgateSocketSlot](d.maps.byName["socket_nat"], false); err != nil {
		return err
	}
	if t.stored, _, err = mapArray(d.maps.byName[storedSockets], false); err != nil {
		t.unmapEntries()
	}
	return err
}

// storedEntries is how many entries were ever kept in socket storage, which
// cannot be looked through from here.
func (d *Datapath) storedEntries() (uint64, error) {
	sum, err := d.maps.counters()
	return sum.SocketEntryStored, err
}

// destroyers are the programs that destroy sockets, or name them.
var destroyers = map[string]string{"destroy_tcp": "", "destroy_udp": ""}

// drained reads what an iterator says, which is nothing where it destroys
// sockets itself.
func drained(output io.Reader) error {
	if _, err := io.Copy(io.Discard, patient{output}); err != nil {
		return fmt.Errorf("go through the sockets: %w", err)
	}
	return nil
}

// runIterators goes through the sockets of the thread's network namespace, and
// does something with what is said of them.
func runIterators(through iterators, do func(io.Reader) error) error {
	for _, it := range through {
		r, err := it.Open()
		if err != nil {
			return fmt.Errorf("open a socket iterator: %w", err)
		}
		err = do(r)
		r.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
