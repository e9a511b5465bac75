package datapath

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Pins returns how many programs, links and maps are pinned below root.
func Pins(root string) (n int, err error) {
	for _, dir := range ownDirs(root) {
		pins, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return n, err
		}
		n += len(pins)
	}
	return n, nil
}

// Cleanup is Remove for those who need not know whom it has told.
func Cleanup(root string) error {
	_, err := Remove(root, nil)
	return err
}

// Removed is what Remove has told and handed over on its way.
type Removed struct {
	// Told is how many connected datagram sockets were destroyed that talked to a backend.
	Told int
	// Untold is why some may not have been, nil if all were.
	Untold error
	// HandedOver are connections of clients elsewhere; those that are left break.
	HandedOver HandedOver
}

// Remove takes everything below root out of force and removes it. Connected datagram sockets
// that were told a backend ask no program again, so that nobody would move them when it
// goes: they are destroyed once no program would tell them another one. Connections that
// packets translate are handed over, where to is not nil. It returns ErrBusy while an agent runs.
func Remove(root string, to Successor) (c Removed, err error) {
	if !exists(root) {
		return c, nil
	}
	if err := checkRoot(root); err != nil {
		return c, err
	}
	f, err := lockPatiently(root)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil // another removal has done it meanwhile
	}
	if err != nil {
		return c, err
	}
	defer f.Close()
	if r, err := Inspect(root); err == nil {
		sweepReplays(decodeString(r.maps.about.at(0).Cgroup[:]))
		r.Close()
	}
	// First what repeats what others did; then what sends clients to backends, so that
	// nobody sees a backend as its peer. No flow begins from when they are handed over.
	if err := detachAll(filepath.Join(root, "links"), isNoDriverPin); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return c, err
	}
	detachHooks := func(hooks []hook) error {
		for _, h := range slices.Backward(hooks) {
			if err := detach(filepath.Join(root, "links", h.program)); err != nil {
				return err
			}
		}
		return nil
	}
	if to != nil {
		c.HandedOver = handOver(root, to)
		defer func() {
			if err != nil { // programs are still in force
				err = errors.Join(err, endHandOver(root), to.Done())
			}
		}()
	}
	if err := detachHooks(makers); err != nil {
		return c, err
	}
	c.Told, c.Untold = tellAll(root)
	if err := detachHooks(slices.Concat(keepers, tracers, watchers)); err != nil {
		return c, err
	}
	if err := dropFilters(func(uint32, string) bool { return false }); err != nil {
		return c, err
	}
	everything := func(string) bool { return false }
	if err := detachAll(filepath.Join(root, "links"), everything); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return c, err
	}
	if to != nil { // before root goes: else nobody would know that it is still to be done
		if err := to.Done(); err != nil {
			return c, err
		}
	}
	return c, removeRoot(root)
}

// ownDirs are the directories that agents make below root.
func ownDirs(root string) []string {
	return append(unfinished(root), filepath.Join(root, "first"), filepath.Join(root, "links"), filepath.Join(root, "maps"))
}

// removeRoot removes what agents have made below root, and root where nothing else is there:
// whoever names a directory that holds pins of others, such as the mount, loses none of them.
func removeRoot(root string) error {
	for _, dir := range ownDirs(root) {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	err := os.Remove(root)
	// Another removal may have been first, while this one waited for its lock.
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EBUSY) {
		return nil
	}
	return err
}

// handOver hands over the connections in the maps below root.
func handOver(root string, to Successor) (c HandedOver) {
	r, err := Inspect(root)
	if errors.Is(err, ErrNotLoaded) {
		return c
	}
	if err == nil {
		defer r.Close()
		err = r.handOver(to, &c)
	}
	c.Why = errors.Join(c.Why, err)
	return c
}

// endHandOver has the programs in force below root begin flows again.
func endHandOver(root string) error {
	r, err := Inspect(root)
	if errors.Is(err, ErrNotLoaded) {
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	return r.maps.endHandOver()
}

// tellAll destroys the connected datagram sockets with an entry in the maps below root, and
// returns how many.
func tellAll(root string) (told int, err error) {
	r, err := Inspect(root)
	if errors.Is(err, ErrNotLoaded) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer r.Close()
	if err := waitGrace(); err != nil { // a program that was under way has written its entry
		return 0, err
	}
	return r.maps.tellAll()
}

func (s *mapSet) tellAll() (told int, err error) {
	o, err := newObject(Config{})
	if err != nil {
		return 0, err
	}
	o = o.only(slices.Values([]string{"destroy_udp"}))
	sizes := map[string]uint32{}
	for name, m := range s.byName {
		if n := m.MaxEntries(); n > 0 { // socket storage has as many as there are sockets
			sizes[name] = n
		}
	}
	o.resize(sizes)
	named := !destroysFromBPF()
	through, err := s.newIterators(o, map[string]string{"destroy_udp": ""}, map[string]any{
		"destroy_all": true, "name_sockets": named, "socket_nat_mask": sizes["socket_nat"] - 1,
	})
	if err != nil {
		return 0, err
	}
	defer through.Close()
	before, err := s.counters()
	if err != nil {
		return 0, err
	}
	do := drained
	if named {
		do = destroyNamed
	}
	err = EachNamespace(func(string, uint64) error { return runIterators(through, do) })
	after, countErr := s.counters()
	return int(after.SocketDestroyed - before.SocketDestroyed), errors.Join(err, countErr)
}
