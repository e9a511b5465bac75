package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/pkg/agent"
	"github.com/headgate/headgate/pkg/datapath"
)

// screen returns the status for people: whether this node is well, and all that one asks
// next, a line each.
func (s *status) screen(now time.Time, version string) [][]string {
	rows := [][]string{{"headgate", s.title(version)}, {"agent", s.agentLine(now)}}
	if s.Contact != nil {
		rows = append(rows, []string{"contact", contactLine(*s.Contact, now)})
	}
	if !s.Starting {
		rows = append(rows,
			[]string{"sockets", s.socketLine()},
			[]string{"packets", s.packetLine()},
			[]string{"pods", s.deviceLine(true)},
			[]string{"content", s.contentLine()},
			[]string{"memory", memoryLine(s.Maps)},
			[]string{"refused", s.refusedLine(now)})
		if line := s.servicesLine(); line != "" {
			rows = append(rows, []string{"services", line})
		}
	}
	if len(s.Drained) > 0 {
		rows = append(rows, []string{"drained", strings.Join(s.Drained, ", ")})
	}
	if line := s.driverLine(); line != "" {
		rows = append(rows, []string{"drivers", line})
	}
	for _, device := range slices.Sorted(maps.Keys(s.XDP)) {
		rows = append(rows, []string{"driver of " + device, "repeats nothing, so TC does all: " + s.XDP[device]})
	}
	for _, p := range s.Problems {
		rows = append(rows, []string{"problem", p.Text})
	}
	return rows
}

// title is version and node, and the verdict. An agent that is starting has said neither.
func (s *status) title(version string) string {
	text := cmp.Or(s.Version, version)
	if s.Node != "" {
		text += " on " + s.Node
	}
	if s.Version != "" && s.Version != version {
		text += " (this program is " + version + ")"
	}
	if len(s.Degraded) == 0 {
		return text + ": WELL"
	}
	return text + ": DEGRADED: " + strings.Join(s.Degraded, ", ")
}

func (s *status) agentLine(now time.Time) string {
	switch {
	case !s.Agent && s.LastAlive.IsZero():
		return "not running: what it programmed stays in force"
	case !s.Agent:
		return fmt.Sprintf("not running: nobody has followed changes for %s (since %s); what it programmed stays in force",
			age(now, s.LastAlive), s.LastAlive.UTC().Format(time.RFC3339))
	case s.Silent != "":
		return s.Silent
	case s.Live == nil && s.Starting:
		return "starting"
	case s.Live == nil:
		return "running; it does not say more, ask it with its --state-dir"
	}
	text := fmt.Sprintf("running for %s, pid %d, follows %s", age(now, s.Live.Started), s.Live.PID, s.Live.Follows)
	if c := s.Live.Change; c != nil {
		text += fmt.Sprintf(", last change %s ago, programmed in %s", age(now, c.At), short(c.Took))
	}
	return text
}

// contactLine says how the agent gets on with the API server.
func contactLine(c agent.Contact, now time.Time) string {
	switch {
	case !c.Lost.IsZero() && c.Synced:
		return fmt.Sprintf("none with the API server for %s: what was in force stays so", age(now, c.Lost))
	case !c.Lost.IsZero():
		return fmt.Sprintf("waits for the API server for %s", age(now, c.Lost))
	case !c.Synced:
		return "waits for the API server to list Services"
	default:
		return c.Server
	}
}

func (s *status) socketLine() string {
	var missing []string
	for _, h := range s.Hooks {
		if !h.Attached {
			missing = append(missing, h.Name)
		}
	}
	text := fmt.Sprintf("cgroup %s: %d of %d programs", s.Cgroup, len(s.Hooks)-len(missing), len(s.Hooks))
	if missing != nil {
		text += " (NOT ATTACHED: " + strings.Join(missing, ", ") + ")"
	}
	return text + "; " + grouped(s.InFlight) + " in flight to backends, with flows of packets"
}

// devicesShown is how many devices of pods are named: a node has hundreds.
const devicesShown = 8

// deviceLine lists the devices of the node, or those of pods, and what is missing there.
func (s *status) deviceLine(ofPods bool) string {
	var all []string
	for _, d := range s.Devices {
		if d.Pod == ofPods {
			all = append(all, d.Name+" "+device{Device: d}.attachment())
		}
	}
	switch {
	case len(all) == 0 && s.Live != nil && s.Live.Starting:
		return "none yet: the agent is starting"
	case len(all) == 0 && ofPods:
		return "none is balanced at its device"
	case len(all) == 0:
		return "no device is chosen: packets from elsewhere are not balanced"
	case len(all) > devicesShown:
		slices.SortStableFunc(all, func(a, b string) int { // what is missing first
			return cmp.Compare(strings.Index(b, "NOT"), strings.Index(a, "NOT"))
		})
		return fmt.Sprintf("%s, and %d more", strings.Join(all[:devicesShown], ", "), len(all)-devicesShown)
	}
	return strings.Join(all, ", ")
}

// packetLine lists the devices of the node, and those on which others may reach it and whose packets no program sees.
func (s *status) packetLine() string {
	line := s.deviceLine(false)
	if len(s.NotChosen) > 0 {
		line += "; not chosen: " + strings.Join(s.NotChosen, ", ")
	}
	return line
}

// driverLine says what the drivers of devices do; nothing where none has a program.
func (s *status) driverLine() string {
	var all []string
	for _, d := range s.Devices {
		if how := (device{Device: d}).driver(); how != "" {
			all = append(all, d.Name+" "+how)
		}
	}
	if all == nil {
		return ""
	}
	line := fmt.Sprintf("%s: %s packets repeated, %s of flows left to TC", strings.Join(all, ", "), grouped(s.Counters["flow_repeated"]), grouped(s.Counters["flow_unrepeated"]))
	if n := s.Counters["carried_at_driver"]; n > 0 {
		line += fmt.Sprintf(", %s carried", grouped(n))
	}
	return line
}

// attachment says how the programs of a device are attached: "tcx", or what is missing.
func (d device) attachment() string {
	var how, missing []string
	for _, h := range d.Hooks {
		switch {
		case !h.Attached:
			missing = append(missing, h.Name)
		case !slices.Contains(how, h.By):
			how = append(how, h.By)
		}
	}
	if missing != nil {
		how = append(how, "NOT ATTACHED: "+strings.Join(missing, " "))
	}
	return strings.Join(how, " ")
}

func (s *status) contentLine() string {
	return fmt.Sprintf("%s, %s, %s in %s", plural(s.Services, "Service port", "Service ports"), plural(s.Frontends, "frontend", "frontends"),
		plural(s.Backends, "backend", "backends"), plural(s.Tables, "table", "tables"))
}

// servicesLine says which Services do not serve, whosever fault that is; nothing where all do.
func (s *status) servicesLine() string {
	var all []string
	if n := len(s.Refusing); n > 0 {
		worst := s.Refusing[0]
		all = append(all, plural(n, "refuses", "refuse")+" everybody ("+andMore(worst.Service+" "+worst.Reason, n-1)+")")
	}
	if s.Live != nil && len(s.Live.Failing) > 0 {
		worst := s.Live.Failing[0]
		for _, f := range s.Live.Failing {
			if f.Failed > worst.Failed {
				worst = f
			}
		}
		n := len(s.Live.Failing)
		all = append(all, plural(n, "fails", "fail")+" > 50 % ("+andMore(worst.Service, n-1)+")")
	}
	if s.Avoided > 0 {
		all = append(all, plural(s.Avoided, "backend", "backends")+" avoided")
	}
	return strings.Join(all, ", ")
}

// andMore is one of several, and how many others there are.
func andMore(one string, others int) string {
	if others == 0 {
		return one
	}
	return fmt.Sprintf("%s and %s more", one, grouped(uint64(others)))
}

// mapsShown is how many maps are named: the fullest of the large ones.
const mapsShown = 3

// memoryLine says what the maps take, and how full the largest are.
func memoryLine(all []datapath.MapInfo) string {
	var bytes uint64
	for _, m := range all {
		bytes += m.Bytes
	}
	largest := make([]item, len(all)) // sorting is compiled for each type, and is for items
	for i, m := range all {
		largest[i] = shownMap{m}
	}
	slices.SortStableFunc(largest, func(a, b item) int { return cmp.Compare(b.(shownMap).Bytes, a.(shownMap).Bytes) })
	var named []string
	fullest := percent(0)
	for i, one := range largest {
		m := one.(shownMap)
		full, counted := fullOf(m).(percent)
		if i < mapsShown {
			text := m.Name + " " + inMiB(m.Bytes)
			if counted {
				text += " " + full.String() + " full"
			}
			named = append(named, text)
		} else if counted {
			fullest = max(fullest, full)
		}
	}
	return fmt.Sprintf("%s in maps: %s; the others at most %s full", inMiB(bytes), strings.Join(named, ", "), fullest)
}

func inMiB(bytes uint64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

func (s *status) refusedLine(now time.Time) string {
	var all []string
	for _, reason := range slices.Sorted(maps.Keys(s.Drops)) {
		if n := s.Drops[reason]; n > 0 {
			all = append(all, grouped(n)+" "+reason)
		}
	}
	text := strings.Join(all, ", ")
	if all == nil {
		text = "nothing"
	}
	if s.Live != nil && s.Live.Refused != nil {
		last := s.Live.Refused
		text += fmt.Sprintf("; last: %s %s %s ago", last.Service, last.Reason, age(now, last.At))
	}
	return text
}

// details returns every program and every counter.
func (s *status) details() [][]string {
	rows := [][]string{{""}, {"object", s.Object}, {"writes", fmt.Sprint(s.Writes)}, {"failures", s.Failures}}
	if s.Sockets != "" {
		rows = append(rows, []string{"lost sockets", s.Sockets})
	}
	rows = append(rows, hookRows("hook", s.Hooks)...)
	for _, d := range s.Devices {
		rows = append(rows, hookRows("device "+d.Name, d.Hooks)...)
	}
	return slices.Concat(rows, counts("count", s.Counters), counts("drop", s.Drops))
}

// hookRows returns a row for each program.
func hookRows(title string, hooks []datapath.Hook) (rows [][]string) {
	for _, h := range hooks {
		state := "attached"
		switch {
		case !h.Attached:
			state = "NOT ATTACHED"
		case h.By != "":
			state += " by " + h.By
		}
		rows = append(rows, []string{title + " " + h.Name, state})
	}
	return rows
}

// parts returns a row for each part of a number that is not 0, by reason.
func parts(what string, m map[string]uint64) [][]string {
	for reason, n := range m {
		if n == 0 {
			delete(m, reason)
		}
	}
	return counts(what, m)
}

// counts returns a row for each counter, by name.
func counts(what string, m map[string]uint64) (rows [][]string) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		rows = append(rows, []string{what + " " + name, fmt.Sprint(m[name])})
	}
	return rows
}

// age is how long ago something was, as people say it.
func age(now, then time.Time) string { return short(max(now.Sub(then), 0)) }

// short is a duration to two units at most: 3d4h, 2m5s, 0.8s, 1.9ms.
func short(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(100 * time.Microsecond).String()
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 24*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	default:
		return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
	}
}

// grouped is a number as people read it: 12,304.
func grouped(n uint64) string {
	text := strconv.FormatUint(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
