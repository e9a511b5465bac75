package network

import (
	"bytes"
	"fmt"
	"image/color"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// minuteOf says for how many seconds TestAMinuteOfChanges makes changes, and pictureOf where its
// picture goes. It takes a while, so it runs only where the first is set.
const (
	minuteOf  = "HEADGATE_CARRY_SECONDS"
	pictureOf = "HEADGATE_CARRY_PICTURE"
)

// The same changes for 500 connections and 200 flows of datagrams: carried, carried by the hash
// alone, and by SNAT.
func TestAMinuteOfChanges(t *testing.T) {
	seconds, err := strconv.Atoi(os.Getenv(minuteOf))
	if err != nil {
		t.Skipf("%s is no number of seconds", minuteOf)
	}
	var lines []brokenLine
	for i, c := range []struct {
		name, forwarding string
		forgetful        bool
	}{{"dsr", "dsr", false}, {"dsr, without former owners", "dsr", true}, {"snat", "snat", false}} {
		t.Run(c.name, func(t *testing.T) {
			f := newFabric(t, c.forwarding)
			f.forgetful, f.pause = c.forgetful, 500*time.Millisecond
			o := f.story(500, 200, seconds, rand.New(rand.NewPCG(1, 2)))
			t.Log(o)
			lines = append(lines, brokenLine{c.name, o.broken})
			if lost := len(o.broken); (lost > 0) != (i > 0) {
				t.Errorf("%d flows are broken", lost)
			}
		})
	}
	if to := os.Getenv(pictureOf); to != "" {
		if err := drawBroken(to, lines, float64(seconds)); err != nil {
			t.Error(err)
		}
	}
}

// forgetOwners has slots forget what they named before, as if there were no rule that asks
// those: a connection is where the hash says, or lost.
func (f *fabric) forgetOwners(end <-chan struct{}) {
	for {
		for _, n := range f.nodes {
			if m, err := ebpf.LoadPinnedMap(filepath.Join(n.root, "maps", "slot_changes"), nil); err == nil {
				empty(m)
				m.Close()
			}
		}
		select {
		case <-end:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// empty deletes what a map has. What comes meanwhile stays until the next time.
func empty(m *ebpf.Map) {
	var keys [][]byte
	key, value := make([]byte, m.KeySize()), make([]byte, m.ValueSize())
	for all := m.Iterate(); all.Next(&key, &value); {
		keys = append(keys, bytes.Clone(key))
	}
	for _, k := range keys {
		_ = m.Delete(k)
	}
}

// brokenLine is when flows broke.
type brokenLine struct {
	name string
	at   []time.Duration
}

// drawBroken draws how many flows are broken, second by second.
func drawBroken(to string, lines []brokenLine, seconds float64) error {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "seconds, with one change of backends and of ingress nodes in each", "flows broken, of 700"
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	colours := []color.RGBA{{0x00, 0x72, 0xb2, 0xff}, {0xe6, 0x9f, 0x00, 0xff}, {0xd5, 0x5e, 0x00, 0xff}}
	for i, l := range lines {
		slices.Sort(l.at)
		points := plotter.XYs{{X: 0, Y: 0}}
		for n, at := range l.at {
			points = append(points, plotter.XY{X: at.Seconds(), Y: float64(n + 1)})
		}
		points = append(points, plotter.XY{X: max(seconds, points[len(points)-1].X), Y: float64(len(l.at))})
		line, err := plotter.NewLine(thin(points))
		if err != nil {
			return err
		}
		line.Color, line.Width = colours[i%len(colours)], vg.Points(2)
		p.Add(line)
		p.Legend.Add(fmt.Sprintf("%s: %d", l.name, len(l.at)), line)
	}
	p.X.Min, p.Y.Min, p.Y.Max = 0, 0, 800
	return p.Save(18*vg.Centimeter, 9*vg.Centimeter, to)
}

// thin keeps of points the last in each half of a second, and the ends.
func thin(points plotter.XYs) plotter.XYs {
	out := points[:1:1]
	for i, pt := range points[1:] {
		if last := i+2 == len(points); last || int(2*points[i+2].X) != int(2*pt.X) {
			out = append(out, pt)
		}
	}
	return out
}
