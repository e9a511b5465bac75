package cli

import (
	"io"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/traffic/result"
)

// pinned says what the kernel knows of what is pinned: a contender.Kernel.
type pinned struct{}

func (pinned) CountRuns() (io.Closer, error) { return datapath.CountRuns() }

func (pinned) Programs(root string) ([]result.Program, error) {
	i, err := datapath.Inspect(root)
	if err != nil {
		return nil, err
	}
	defer i.Close()
	runs, err := i.ProgramRuns()
	if err != nil {
		return nil, err
	}
	var list []result.Program
	for _, r := range runs {
		list = append(list, result.Program{Name: r.Name, Runs: r.Runs, Time: r.Time})
	}
	return list, nil
}

func (pinned) MapBytes(root string) (uint64, error) {
	i, err := datapath.Inspect(root)
	if err != nil {
		return 0, err
	}
	defer i.Close()
	return i.MapBytes()
}
