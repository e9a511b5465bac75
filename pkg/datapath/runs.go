package datapath

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// ProgramRuns is how often a program ran and for how long, as far as the kernel
// has counted: see CountRuns.
type ProgramRuns struct {
	ID   uint32
	Name string
	Runs uint64
	Time time.Duration
}

// CountRuns has the kernel count runs of all programs of the machine, until what
// it returns is closed. That costs two looks at the clock for each run.
func CountRuns() (io.Closer, error) {
	counting, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return nil, fmt.Errorf("switch on statistics of programs: %w", err)
	}
	return counting, nil
}

// ProgramRuns returns what was counted of the programs that are attached, sorted
// by name.
func (r *Reader) ProgramRuns() ([]ProgramRuns, error) {
	byID := make(map[uint32]ProgramRuns)
	dir := filepath.Join(r.root, "links")
	pins, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read links: %w", err)
	}
	for _, pin := range pins {
		r, err := linkRuns(filepath.Join(dir, pin.Name()))
		if err != nil {
			return nil, fmt.Errorf("link %s: %w", pin.Name(), err)
		}
		byID[r.ID] = r
	}
	for _, h := range deviceHooks { // where there are no links to devices
		p, err := ebpf.LoadPinnedProgram(filepath.Join(r.root, "maps", h.program), nil)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("program %s: %w", h.program, err)
		}
		r, err := programRuns(p)
		if err = errors.Join(err, p.Close()); err != nil {
			return nil, fmt.Errorf("program %s: %w", h.program, err)
		}
		byID[r.ID] = r
	}
	list := make([]ProgramRuns, 0, len(byID))
	for _, r := range byID {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b ProgramRuns) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return list, nil
}

// MapBytes is the kernel memory of all maps.
func (r *Reader) MapBytes() (sum uint64, err error) {
	for name, m := range r.maps.byName {
		info, err := m.Info()
		if err != nil {
			return 0, fmt.Errorf("map %s: %w", name, err)
		}
		bytes, _ := info.Memlock()
		sum += bytes
	}
	return sum, nil
}

// linkRuns is what was counted of the program of a link.
func linkRuns(pin string) (ProgramRuns, error) {
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return ProgramRuns{}, err
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return ProgramRuns{}, err
	}
	p, err := ebpf.NewProgramFromID(info.Program)
	if err != nil {
		return ProgramRuns{}, err
	}
	defer p.Close()
	return programRuns(p)
}

func programRuns(p *ebpf.Program) (ProgramRuns, error) {
	info, err := p.Info()
	if err != nil {
		return ProgramRuns{}, err
	}
	id, _ := info.ID()
	stats, err := p.Stats()
	if err != nil {
		return ProgramRuns{}, err
	}
	return ProgramRuns{ID: uint32(id), Name: info.Name, Runs: stats.RunCount, Time: stats.Runtime}, nil
}
