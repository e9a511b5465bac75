package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/pkg/traffic/result"
)

// useHeader is what CPU times for an operation are called at the head of a column.
var useHeader = map[string]string{
	result.CPU().Name: "CPU each", result.ClientCPU().Name: "of it the client", result.MachineCPU().Name: "machine busy each", result.ProgramTime().Name: "BPF programs each",
}

// used returns what of it any of the measurements has.
func used(groups []result.Group) []result.Metric {
	var list []result.Metric
	for _, m := range []result.Metric{result.CPU(), result.ClientCPU(), result.MachineCPU(), result.ProgramTime()} {
		for _, g := range groups {
			if len(g.Values(m)) > 0 {
				list = append(list, m)
				break
			}
		}
	}
	return list
}

// memory returns a line for each measurement that a load balancer held memory in:
// medians of rounds, and what its programs did.
func memory(groups []result.Group) Table {
	t := Table{Header: []string{"measurement", "memory of processes", "BPF maps", "kernel, more than before", "up after", "CPU of processes", "BPF programs for an operation"}}
	for _, g := range groups {
		var processes, maps, kernel, up, cpu []float64
		programs := "–"
		for _, r := range g.Runs {
			if r.Use == nil || r.Use.Memory == (result.Memory{}) {
				continue
			}
			m := r.Use.Memory
			processes, maps, kernel = append(processes, float64(m.Resident)), append(maps, float64(m.Maps)), append(kernel, float64(m.Kernel))
			up, cpu = append(up, float64(m.BringUp)), append(cpu, 100*r.Use.Balancer.Seconds()/r.Elapsed.Seconds())
			if r.Use.Programs != nil {
				programs = programText(*r.Use.Programs)
			}
		}
		if len(up) == 0 {
			continue
		}
		t.Rows = append(t.Rows, []string{
			shortTitle(g), sizeOrDash(processes), sizeOrDash(maps), result.Size(result.Median(kernel)),
			time.Duration(result.Median(up)).Round(10 * time.Millisecond).String(), fmt.Sprintf("%.1f %%", result.Median(cpu)), programs,
		})
	}
	return t
}

func sizeOrDash(values []float64) string {
	median := result.Median(values)
	if median == 0 {
		return "–"
	}
	return result.Size(median)
}

// programText lists programs, each with how often it runs for an operation and how
// long a run takes.
func programText(p result.Programs) string {
	if p.Operations == 0 || len(p.Each) == 0 {
		return "–"
	}
	var parts []string
	for _, each := range p.Each {
		perOperation := float64(each.Runs) / float64(p.Operations)
		if perOperation < 0.005 { // of connections that were kept
			continue
		}
		parts = append(parts, fmt.Sprintf("%s %.2f × %.0f ns", each.Name, perOperation, float64(each.Time)/float64(each.Runs)))
	}
	return strings.Join(parts, ", ")
}
