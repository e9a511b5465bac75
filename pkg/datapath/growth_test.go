package datapath_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/plan"
)

// larger is more room than config gives.
var larger = plan.Sizes{Frontends: 3000, Slots: 1 << 19, Backends: 9000, Services: 3000, Addresses: 3000}

// attached returns a datapath in force with what someOps write.
func attached(t *testing.T, cfg datapath.Config) *datapath.Datapath {
	t.Helper()
	d := mustOpen(t, cfg)
	mustApply(t, d, someOps()...)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	return d
}

// inForce returns the program of connect4.
func inForce(t *testing.T, cfg datapath.Config) ebpf.ProgramID {
	t.Helper()
	return linkedProgram(t, filepath.Join(cfg.Root, "links", "connect4"))
}

// programs returns the IDs of all programs that the kernel has.
func programs(t *testing.T) (ids []ebpf.ProgramID) {
	t.Helper()
	for id := ebpf.ProgramID(0); ; ids = append(ids, id) {
		var err error
		if id, err = ebpf.ProgramGetNextID(id); err != nil {
			return ids
		}
	}
}

func TestPreparedMapsTakeWhatWasWrittenMeanwhile(t *testing.T) {
	cfg := config(t)
	d := attached(t, cfg)
	former := inForce(t, cfg)
	if err := d.Prepare(larger); err != nil {
		t.Fatal(err)
	}
	if inForce(t, cfg) != former {
		t.Error("programs were replaced before there was need")
	}
	verified := programs(t)
	more := []plan.Op{
		plan.PutBackend{ID: 7, Backend: addrPort(100, 80)},
		plan.PutAddress{Addr: addrPort(9, 80).Addr, Kind: plan.ServiceAddress},
		plan.PutFrontend{Key: addrPort(9, 80), Value: plan.Frontend{Service: 1}},
	}
	mustApply(t, d, more...)
	if err := d.Reserve(larger); err != nil {
		t.Fatal(err)
	}
	if !larger.Fit(d.Sizes()) {
		t.Errorf("the maps have room for %+v", d.Sizes())
	}
	if now := inForce(t, cfg); now == former || !slices.Contains(verified, now) {
		t.Errorf("program %d is in force, after %d: not the one that was prepared", now, former)
	}
	wantContent(t, d, append(someOps(), more...)...)
	mustInspect(t, cfg)
	d.Close()
	d = mustOpen(t, cfg)
	wantContent(t, d, append(someOps(), more...)...)
	if err := d.Attach(); err != nil || inForce(t, cfg) == former {
		t.Errorf("the next agent: %v", err)
	}
}

func TestWhatIsPreparedAndTooSmallIsLetGo(t *testing.T) {
	cfg := config(t)
	d := attached(t, cfg)
	before := loaded(t)
	if err := d.Prepare(larger); err != nil {
		t.Fatal(err)
	}
	if loaded(t) == before {
		t.Fatal("no program is prepared")
	}
	if err := d.Reserve(plan.Sizes{Frontends: 4 * larger.Frontends}); err != nil {
		t.Fatal(err)
	}
	if now := loaded(t); now != before {
		t.Errorf("%d programs are open, and %d were before", now, before)
	}
	wantContent(t, d, someOps()...)
	if err := d.Prepare(larger); err != nil { // of what has grown already
		t.Fatal(err)
	}
	if err := d.Reserve(larger); err != nil {
		t.Fatal(err)
	}
	wantContent(t, d, someOps()...)
	if now := loaded(t); now != before {
		t.Errorf("%d programs are open in the end, and %d were before", now, before)
	}
}

func TestAReserveWaitsForWhatIsBeingPrepared(t *testing.T) {
	cfg := config(t)
	d := attached(t, cfg)
	done := make(chan error, 1)
	go func() { done <- d.Prepare(larger) }()
	if err := d.Reserve(larger); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	wantContent(t, d, someOps()...)
	mustInspect(t, cfg)
}

func TestWhatIsPreparedGoesWithTheProcess(t *testing.T) {
	before := loaded(t)
	cfg := config(t)
	d := attached(t, cfg)
	former := inForce(t, cfg)
	if err := d.Prepare(larger); err != nil {
		t.Fatal(err)
	}
	writes := d.Writes()
	if _, err := os.Stat(filepath.Join(cfg.Root, "next")); !os.IsNotExist(err) {
		t.Errorf("maps are pinned: %v", err)
	}
	d.Close()
	if now := loaded(t); now != before {
		t.Errorf("%d programs are open, and %d were before", now, before)
	}
	d = mustOpen(t, cfg)
	if err := d.Attach(); err != nil || d.Writes() != writes || inForce(t, cfg) != former {
		t.Errorf("the next agent: %v, %d writes, program %d after %d", err, d.Writes()-writes, inForce(t, cfg), former)
	}
}

func TestWhatCannotBePreparedChangesNothing(t *testing.T) {
	cfg := config(t)
	d := attached(t, cfg)
	former := inForce(t, cfg)
	if err := d.Prepare(plan.Sizes{Frontends: 1 << 30}); err == nil {
		t.Fatal("maps of 128 GiB are prepared")
	}
	if inForce(t, cfg) != former {
		t.Error("programs were replaced")
	}
	wantContent(t, d, someOps()...)
	if err := d.Prepare(larger); err != nil {
		t.Fatal(err)
	}
	if err := d.Reserve(larger); err != nil {
		t.Fatal(err)
	}
	wantContent(t, d, someOps()...)
}

func TestProgramsThatAreLoadedWhileItIsPlannedComeIntoForce(t *testing.T) {
	cfg := config(t)
	before := loaded(t)
	d := mustOpen(t, cfg)
	if err := d.Reserve(larger); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- d.Load() }()
	mustApply(t, d, someOps()...)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	verified := programs(t)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	if now := inForce(t, cfg); !slices.Contains(verified, now) {
		t.Errorf("program %d is in force, not the one that was loaded", now)
	}
	wantContent(t, d, someOps()...)
	open := loaded(t)
	if err := d.Load(); err != nil || loaded(t) != open {
		t.Errorf("nothing is to be attached: %v, %d programs are open, and %d were before", err, loaded(t), open)
	}
	d.Close()
	if now := loaded(t); now != before {
		t.Errorf("%d programs are open in the end, and %d were before", now, before)
	}
}

// Programs of maps that were replaced meanwhile are not attached.
func TestProgramsThatAreLoadedTooEarlyAreLetGo(t *testing.T) {
	cfg := config(t)
	d := mustOpen(t, cfg)
	if err := d.Load(); err != nil {
		t.Fatal(err)
	}
	verified := programs(t)
	mustApply(t, d, someOps()...)
	if err := d.Reserve(larger); err != nil {
		t.Fatal(err)
	}
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	if now := inForce(t, cfg); slices.Contains(verified, now) {
		t.Errorf("program %d is in force, of the former maps", now)
	}
	wantContent(t, d, someOps()...)
	mustInspect(t, cfg)
}

// A tenant that knows the order of the frontends map chooses more frontends of one place than a search reaches. The maps
// keep their size, in the process that writes them and in the next one.
func TestFrontendsOfOnePlaceDoNotMakeMapsGrow(t *testing.T) {
	cfg := config(t)
	cfg.Sizes = plan.Sizes{Frontends: 1024, Slots: 1024, Backends: 64, Services: 64, Addresses: 1024, Peers: 4}
	d := attached(t, cfg)
	room, former, content := d.Sizes(), inForce(t, cfg), someOps()
	for process := range 2 {
		var ops []plan.Op
		for _, at := range d.FrontendsOfOnePlace(80) {
			ops = append(ops, plan.PutAddress{Addr: at.Addr, Kind: plan.ServiceAddress}, plan.PutFrontend{Key: at, Value: plan.Frontend{Service: 1}})
		}
		if len(ops) != 160 {
			t.Fatalf("%d frontends have one place", len(ops)/2)
		}
		mustApply(t, d, ops...)
		if content = append(content, ops...); d.Sizes() != room {
			t.Errorf("process %d: the maps have room for %+v, had %+v", process, d.Sizes(), room)
		}
		if now := inForce(t, cfg); now == former {
			t.Errorf("process %d: the maps were not replaced: nothing is tested", process)
		}
		wantContent(t, d, content...)
		d.Close()
		d = mustOpen(t, cfg)
		wantContent(t, d, content...)
		if former = inForce(t, cfg); d.Sizes() != room {
			t.Errorf("after process %d the maps have room for %+v, had %+v", process, d.Sizes(), room)
		}
	}
}
