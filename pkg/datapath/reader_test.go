package datapath_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// opens are the two ways to a reader.
func opens(d *datapath.Datapath, cfg datapath.Config) map[string]func() (*datapath.Reader, error) {
	return map[string]func() (*datapath.Reader, error){
		"of the process": d.Reader,
		"of the pins":    func() (*datapath.Reader, error) { return datapath.Inspect(cfg.Root) },
	}
}

// A reader may be made before maps grow, and read what others of them say that were not
// replaced.
func TestWhoLooksWhileMapsGrowSeesWhatIsThere(t *testing.T) {
	for name := range opens(nil, datapath.Config{}) {
		t.Run(name, func(t *testing.T) {
			cfg := config(t)
			d := mustOpen(t, cfg)
			mustApply(t, d, someOps()...)
			if err := d.Attach(); err != nil {
				t.Fatal(err)
			}
			open := opens(d, cfg)[name]
			early, err := open()
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Reserve(plan.Sizes{Slots: 1000}); err != nil {
				t.Fatal(err)
			}
			later := plan.Table{Offset: 900, Size: 3}
			mustApply(t, d, plan.PutTable{Table: later, Backends: []uint32{1, 2, 1}},
				plan.PutFrontend{Key: addrPort(9, 80), Value: plan.Frontend{Service: 1, Views: [lb.NumViews]plan.View{lb.Internal: {Table: later}}}})
			readers := []*datapath.Reader{early}
			var content plan.Content
			err = datapath.Look(func() (*datapath.Reader, error) {
				if len(readers) == 0 {
					return open()
				}
				readers = readers[1:]
				return early, nil
			}, func(r *datapath.Reader) (err error) {
				content, err = r.Content()
				return err
			})
			if got := content.Frontends[addrPort(9, 80)].Views[lb.Internal].Table; err != nil || got != later {
				t.Errorf("the frontend names %+v, %v, want %+v", got, err, later)
			}
		})
	}
}

// Whoever opens maps while they are replaced has all of them of one set.
func TestAReaderOfThePinsHasMapsOfOneSet(t *testing.T) {
	cfg := config(t)
	d := mustOpen(t, cfg)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	dir, aside := filepath.Join(cfg.Root, "maps"), filepath.Join(cfg.Root, "aside")
	t.Cleanup(func() { os.RemoveAll(aside) }) // no agent made it, so none removes it
	small := datapath.RoomOf(t, cfg.Root)
	if err := d.PinMaps(aside); err != nil {
		t.Fatal(err)
	}
	if err := d.Reserve(plan.Sizes{Frontends: 256, Slots: 25600, Backends: 512, Services: 256, Addresses: 256}); err != nil {
		t.Fatal(err)
	}
	large := datapath.RoomOf(t, cfg.Root)
	for i := range 200 {
		replaced := make(chan error)
		go func() {
			time.Sleep(time.Duration(i) * 10 * time.Microsecond)
			replaced <- unix.Renameat2(unix.AT_FDCWD, aside, unix.AT_FDCWD, dir, unix.RENAME_EXCHANGE)
		}()
		seen := datapath.RoomOf(t, cfg.Root)
		if err := <-replaced; err != nil {
			t.Fatal(err)
		}
		if seen != small && seen != large {
			t.Fatalf("a reader has room for %+v, want %+v or %+v", seen, small, large)
		}
	}
}

// Nobody may write the memory of a frozen map.
func TestMapsThatCannotBeMappedAreClosed(t *testing.T) {
	cfg := config(t)
	d := mustOpen(t, cfg)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	d.Close()
	peers, err := ebpf.LoadPinnedMap(filepath.Join(cfg.Root, "maps", "peers"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer peers.Close()
	if err := peers.Freeze(); err != nil {
		t.Fatal(err)
	}
	before := opened(t, "bpf-map")
	if r, err := datapath.Inspect(cfg.Root); err == nil {
		r.Close()
		t.Fatal("a frozen map is mapped into memory")
	}
	if n := opened(t, "bpf-map") - before; n != 0 {
		t.Errorf("%d maps stay open", n)
	}
}

// The memory of maps that were replaced is unmapped: to read on there would end the
// process.
func TestReadersOfTheProcessGoOnWhileMapsGrow(t *testing.T) {
	cfg := config(t)
	d := mustOpen(t, cfg)
	if _, err := d.Reader(); !errors.Is(err, datapath.ErrNotLoaded) {
		t.Errorf("before Attach a reader is %v", err)
	}
	mustApply(t, d, someOps()...)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	grown := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			var search datapath.Ejected
			for {
				select {
				case <-grown:
					return
				default:
				}
				err := datapath.Look(d.Reader, func(r *datapath.Reader) error {
					_, errStatus := r.Status()
					_, errEjected := search.Find(r)
					_, errContent := r.Content()
					totals, errTotals := r.Totals()
					if totals.Frontends != 3 || totals.Tables != 1 || totals.Backends != 2 {
						t.Errorf("read %+v while maps grow", totals)
					}
					return errors.Join(errStatus, errEjected, errContent, errTotals)
				})
				if err != nil {
					t.Errorf("read while maps grow: %v", err)
				}
			}
		})
	}
	for size := uint32(64); size <= 256; size *= 2 {
		if err := d.Reserve(plan.Sizes{Frontends: size, Slots: 100 * size, Backends: size, Services: size}); err != nil {
			t.Error(err)
		}
	}
	close(grown)
	readers.Wait()
}

func TestReadersOfTheProcessNeedNoPins(t *testing.T) {
	cfg := config(t)
	cfg.EjectAfter = 3
	d := mustOpen(t, cfg)
	mustApply(t, d, someOps()...)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"maps", "links"} {
		if err := os.RemoveAll(filepath.Join(cfg.Root, dir)); err != nil {
			t.Fatal(err)
		}
	}
	if known, err := d.Eject(v6, true, time.Minute); !known || err != nil {
		t.Errorf("note a probe: %v, %v", known, err)
	}
	r, err := d.Reader()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s, err := r.Status()
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range s.Hooks {
		if !h.Attached {
			t.Errorf("%s is attached and is said not to be", h.Name)
		}
	}
	if totals, err := r.Totals(); err != nil || totals.Services != 1 {
		t.Errorf("totals are %+v, %v", totals, err)
	}
	d.Close()
	if f, found := r.Frontend(v6); !found || f.Service == 0 {
		t.Errorf("once the datapath is closed the reader finds %+v, %v", f, found)
	}
	if _, err := d.Reader(); !errors.Is(err, datapath.ErrNotLoaded) {
		t.Errorf("a reader of a closed datapath: %v", err)
	}
}

func TestAReaderSaysWhatThereIs(t *testing.T) {
	cfg := config(t)
	d := mustOpen(t, cfg)
	mustApply(t, d, someOps()...)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	content, err := d.Content()
	if err != nil {
		t.Fatal(err)
	}
	for name, open := range opens(d, cfg) {
		r, err := open()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		totals, err := r.Totals()
		want := datapath.Totals{Frontends: 3, Tables: 1, Slots: 3, Backends: 2, Services: 1}
		if diff := cmp.Diff(want, totals); diff != "" || err != nil {
			t.Errorf("totals %s, %v (-want +got):\n%s", name, err, diff)
		}
		for at, want := range content.Frontends {
			if f, found := r.Frontend(at); f != want || !found {
				t.Errorf("%s is %+v, %v %s, want %+v", at, f, found, name, want)
			}
		}
		if f, found := r.Frontend(addrPort(99, 80)); found {
			t.Errorf("there is no such frontend, and %s it is %+v", name, f)
		}
		if s, err := r.Service(1); s != content.Services[1] || err != nil {
			t.Errorf("the Service is %s %s, %v", s, name, err)
		}
		if counts, err := r.CountEntries(); err != nil || counts["addresses"] != uint32(len(content.Addresses)) {
			t.Errorf("counted %v %s, %v", counts, name, err)
		}
	}
}

// What is ejected is counted, so that nobody has to look at all backends.
func TestEjectedBackendsAreFoundByTheirCounter(t *testing.T) {
	cfg := config(t)
	cfg.EjectAfter = 3
	d := mustOpen(t, cfg)
	mustApply(t, d, someOps()...)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	var search datapath.Ejected
	want := func(when string, want ...uint32) {
		t.Helper()
		var got []uint32
		err := datapath.Look(d.Reader, func(r *datapath.Reader) (err error) {
			got, err = search.Find(r)
			return err
		})
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("ejected %s, %v (-want +got):\n%s", when, err, diff)
		}
	}
	probed := func(at lb.AddrPort, failed bool) {
		t.Helper()
		if known, err := d.Eject(at, failed, time.Minute); !known || err != nil {
			t.Fatalf("note a probe: %v, %v", known, err)
		}
	}
	want("at first")
	probed(addrPort(1, 8080), true)
	probed(v6, true)
	want("where both fail", 1, 2)
	probed(addrPort(1, 8080), false)
	want("where one is back", 2)
	mustApply(t, d, plan.PutBackend{ID: 2, Backend: addrPort(3, 80)})
	want("where the other is gone")
}

// A scrape reads names while the agent writes them.
func TestAServiceHasOneWholeNameOrNone(t *testing.T) {
	d := mustOpen(t, config(t))
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	r, err := d.Reader()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var names [2]plan.Service
	for i := range names {
		names[i] = plan.Service{ServiceName: lb.ServiceName{Namespace: "namespace", Name: strings.Repeat(string(rune('a'+i)), 60)}, Port: "port", Protocol: lb.TCP}
	}
	written := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < 300_000 && err == nil; i++ {
			_, err = d.Apply([]plan.Op{plan.PutService{ID: 1, Service: names[i%2]}})
		}
		written <- err
	}()
	for seen := map[plan.Service]int{}; ; {
		select {
		case err := <-written:
			if err != nil || seen[names[0]] == 0 || seen[names[1]] == 0 {
				t.Errorf("seen %v, %v", seen, err)
			}
			return
		default:
		}
		s, err := r.Service(1)
		if seen[s]++; err != nil || s != (plan.Service{}) && s != names[0] && s != names[1] {
			if err := <-written; err != nil {
				t.Error(err)
			}
			t.Fatalf("the name is %q, %v", s.Name, err)
		}
	}
}

// What a scrape reads it goes through: lists of all would be garbage, once for each scrape.
func TestAScrapeMakesAsManyObjectsHoweverManyServicesThereAre(t *testing.T) {
	objects := func(services byte) float64 {
		cfg := config(t)
		cfg.Sizes = plan.Sizes{Frontends: 256, Slots: 256, Backends: 256, Services: 256, Addresses: 256}
		d := mustOpen(t, cfg)
		for n := byte(1); n <= services; n++ {
			table := plan.Table{Offset: plan.DenseSlot | uint32(n), Size: 1}
			mustApply(t, d, plan.PutBackend{ID: uint32(n), Backend: addrPort(n, 8080)},
				plan.PutService{ID: uint32(n), Service: plan.Service{ServiceName: lb.ServiceName{Namespace: "default", Name: fmt.Sprint("web-", n)}, Protocol: lb.TCP}},
				plan.PutFrontend{Key: addrPort(n, 80), Value: plan.Frontend{Service: uint32(n), Members: table, Views: [lb.NumViews]plan.View{lb.Internal: {Table: table}}}})
		}
		if err := d.Attach(); err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		return testing.AllocsPerRun(5, func() {
			if err := datapath.Look(d.Reader, scrape); err != nil {
				t.Error(err)
			}
		})
	}
	if few, many := objects(2), objects(200); many > few+20 {
		t.Errorf("a scrape makes %v objects with 200 Services, and %v with 2", many, few)
	}
}

// scrape reads what metrics tell of all Services.
func scrape(r *datapath.Reader) error {
	totals, err := r.Totals()
	if err != nil {
		return err
	}
	if _, err := r.Maps(totals, nil); err != nil {
		return err
	}
	services, err := r.Services()
	if err != nil {
		return err
	}
	for id := range services {
		if _, err := r.Drops(id); err != nil {
			return err
		}
	}
	return nil
}
