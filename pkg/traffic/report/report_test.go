package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"image/color"
	"image/png"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/traffic/result"
)

var update = flag.Bool("update", false, "write what is drawn into testdata; look at it before you commit it")

// example is two contenders with 1 and 1,000 Services in three rounds, the same each
// time: distributions come from formulas, not from chance.
func example() *result.Report {
	r := result.NewReport(result.Meta{
		Command: []string{"headgate", "bench", "scenario", "x|y.yaml"}, Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Ended: time.Date(2026, 1, 2, 3, 5, 5, 0, time.UTC), Kernel: "6.12", Architecture: "amd64", CPU: "a CPU <b>", CPUs: 2,
		Versions: map[string]string{"headgate": "v1"},
	})
	for round := 1; round <= 3; round++ {
		for _, services := range []int{1, 1000} {
			for i, contender := range []string{"direct", "rules"} {
				r.Runs = append(r.Runs, exampleRun(round, services, contender, 1+float64(i)*float64(services)/500))
			}
		}
	}
	return r
}

func exampleRun(round, services int, contender string, slower float64) result.Run {
	run := result.Run{
		Labels:  map[string]string{"contender": contender, "services": fmt.Sprint(services), "round": fmt.Sprint(round)},
		Load:    result.Load{Kind: "crr", Loop: "open", Rate: 1000, Arrivals: "constant", Targets: []string{"192.0.2.1:80"}, Duration: time.Second},
		Elapsed: time.Second, Due: 20_000, Completed: 20_000, InTime: uint64(20_000 / slower), Interval: 100 * time.Millisecond,
		Latency: result.NewHistogram(), Service: result.NewHistogram(), Lateness: result.NewHistogram(),
	}
	for i := range 20_000 { // the exponential distribution, evenly
		run.Latency.Add(time.Duration(-100e3 * slower * (1 + 0.01*float64(round)) * math.Log(1-(float64(i)+0.5)/20_000)))
	}
	for i := range 10 {
		run.TimeLine = append(run.TimeLine, result.Point{
			At: time.Duration(i) * run.Interval, Due: 100, Completed: uint64(90 + i), P50: 70 * time.Microsecond, P99: 300 * time.Microsecond, Max: time.Millisecond,
		})
	}
	if contender == "rules" && services == 1 && round == 1 {
		run.Failed, run.Errors = 3, map[result.ErrorKind]uint64{result.Refused: 3}
		run.Events = []result.Event{{At: 300 * time.Millisecond, Name: "kill <one> & all"}}
	}
	return run
}

func figureNamed(t *testing.T, r *result.Report, name string) Figure {
	t.Helper()
	names := []string{}
	for _, f := range Figures(r) {
		if f.Name == name {
			return f
		}
		names = append(names, f.Name)
	}
	t.Fatalf("no figure is named %s, there are %s", name, strings.Join(names, " "))
	return Figure{}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s is another one, see -update (-want +got):\n%s", name, diff)
	}
}

func TestTheFiguresOfAReportWithContenders(t *testing.T) {
	var names []string
	for _, f := range Figures(example()) {
		names = append(names, f.Name)
	}
	want := []string{
		"services-p50", "services-p99",
		"rate-crr-1-000-s-constant-services-1", "latency-crr-1-000-s-constant-services-1", "cdf-crr-1-000-s-constant-services-1",
		"rate-crr-1-000-s-constant-services-1000", "latency-crr-1-000-s-constant-services-1000", "cdf-crr-1-000-s-constant-services-1000",
		"rate-line-crr-1-000-s-constant-contender-rules-services-1-round-1", "latency-line-crr-1-000-s-constant-contender-rules-services-1-round-1",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("figures (-want +got):\n%s", diff)
	}
}

func TestFiguresAreDrawnAsBefore(t *testing.T) {
	r := example()
	for file, name := range map[string]string{
		"latency.svg":  "latency-crr-1-000-s-constant-services-1",
		"cdf.svg":      "cdf-crr-1-000-s-constant-services-1",
		"rate.svg":     "rate-crr-1-000-s-constant-services-1",
		"services.svg": "services-p50",
		"line.svg":     "rate-line-crr-1-000-s-constant-contender-rules-services-1-round-1",
	} {
		svg, err := figureNamed(t, r, name).SVG()
		if err != nil {
			t.Fatal(err)
		}
		golden(t, file, svg)
	}
}

func TestEveryFigureIsWellFormed(t *testing.T) {
	for _, f := range Figures(example()) {
		svg, err := f.SVG()
		if err != nil {
			t.Fatal(err)
		}
		for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %s", f.Name, err)
			}
		}
		if !bytes.Contains(svg, []byte(">"+f.Title+"<")) {
			t.Errorf("%s does not show its title %q", f.Name, f.Title)
		}
		picture, err := f.PNG()
		if err != nil {
			t.Fatal(err)
		}
		image, err := png.Decode(bytes.NewReader(picture))
		if err != nil {
			t.Fatalf("%s: %s", f.Name, err)
		}
		if size := image.Bounds().Size(); size.X < 1300 || size.Y < 650 {
			t.Errorf("%s is %v dots large", f.Name, size)
		}
		drawn := 0
		for x := range image.Bounds().Dx() {
			for y := range image.Bounds().Dy() {
				// The second series may hide the first.
				if c := color.RGBAModel.Convert(image.At(x, y)); c == hue(0) || c == hue(1) {
					drawn++
				}
			}
		}
		if drawn < 500 {
			t.Errorf("%s has %d dots in the colours of its first series", f.Name, drawn)
		}
	}
}

// What is in a report may be nothing, or odd; drawing must survive it.
func TestOddReportsAreDrawn(t *testing.T) {
	empty := result.Run{Load: result.Load{Kind: "connect"}, Latency: result.NewHistogram()}
	single := exampleRun(1, 1, "direct", 1)
	single.Latency = result.NewHistogram()
	single.Latency.Add(0)
	single.TimeLine = single.TimeLine[:2]
	single.TimeLine[0].P50 = 0
	single.Events = []result.Event{{At: -time.Second, Name: ""}, {At: time.Hour, Name: strings.Repeat("long ", 50)}}
	forever := exampleRun(1, 1, "direct", 1)
	forever.Latency.Add(time.Hour)
	for name, runs := range map[string][]result.Run{
		"no runs": nil, "an empty run": {empty}, "a run of one operation": {single}, "the longest latency": {forever}, "both": {empty, single},
	} {
		t.Run(name, func(t *testing.T) {
			r := &result.Report{Runs: runs}
			if _, err := WriteFigures(t.TempDir(), Figures(r)); err != nil {
				t.Error(err)
			}
			if err := (Page{Sections: []Section{{Report: r, Base: "direct"}}}).WriteHTML(io.Discard); err != nil {
				t.Error(err)
			}
		})
	}
}

func examplePage() Page {
	return Page{Title: "An example", Intro: "From formulas.", Sections: []Section{{
		Title: "Rules & none", Text: "Two ways.", Report: example(), Base: "direct",
		Aims: []Aim{{"p50 over direct", "× 1.050", "× 3.000", false}, {"failed", "0", "0", true}},
	}}}
}

func TestTheMarkdownIsAsBefore(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	if err := examplePage().WriteMarkdownFile(file); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "page.md", text)
}

func TestThePageNeedsNothingElse(t *testing.T) {
	var page bytes.Buffer
	if err := examplePage().WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	if outside := regexp.MustCompile(`(?:src|href)="[^#][^"]*"|@import|url\(`).FindString(page.String()); outside != "" {
		t.Errorf("the page refers to %s", outside)
	}
	for _, want := range []string{
		"<h1>An example</h1>", "Rules &amp; none: p50 over direct is × 3.000, aimed at × 1.050", `<td class="missed">missed</td>`,
		"a CPU &lt;b&gt;", "kill &lt;one&gt; &amp; all", "rules, crr, 1,000/s constant, services 1000",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page has no %q", want)
		}
	}
}

// A browser shows all of it. It is not among what tests install: without one
// this test is left out.
func TestABrowserShowsThePage(t *testing.T) {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("needs chromium")
	}
	dir := t.TempDir()
	if kept := os.Getenv("HEADGATE_SCREENSHOT_DIR"); kept != "" {
		dir = kept // to be looked at
	}
	file := filepath.Join(dir, "page.html")
	if err := examplePage().WriteHTMLFile(file); err != nil {
		t.Fatal(err)
	}
	args := []string{"--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir=" + dir, "--window-size=1300,2400"}
	dom, err := exec.Command(browser, append(args, "--dump-dom", "file://"+file)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	if figures := bytes.Count(dom, []byte("<figure ")); figures != len(Figures(example())) {
		t.Errorf("the browser has %d figures, want %d", figures, len(Figures(example())))
	}
	shot := filepath.Join(dir, "page.png")
	if err := exec.Command(browser, append(args, "--screenshot="+shot, "file://"+file)...).Run(); err != nil {
		t.Fatal(err)
	}
	picture, err := os.Open(shot)
	if err != nil {
		t.Fatal(err)
	}
	defer picture.Close()
	image, err := png.Decode(picture)
	if err != nil {
		t.Fatal(err)
	}
	coloured := 0
	for x := range image.Bounds().Dx() {
		for y := range image.Bounds().Dy() {
			if r, g, b, _ := image.At(x, y).RGBA(); r>>8 < 0x40 && g>>8 > 0x60 && b>>8 > 0xa0 { // about the blue of the first series
				coloured++
			}
		}
	}
	if coloured < 2000 {
		t.Errorf("%d dots of the screenshot have the colour of the first series: are the figures drawn?", coloured)
	}
}

func TestWhatWasUsedHasColumnsAndATable(t *testing.T) {
	r := example()
	for i := range r.Runs {
		r.Runs[i].Use = &result.Use{Client: 2 * time.Second, Servers: time.Second, Machine: 4 * time.Second}
		if r.Runs[i].Labels[ContenderLabel] == "rules" {
			r.Runs[i].Use.Balancer = 10 * time.Millisecond
			r.Runs[i].Use.Memory = result.Memory{Resident: 10 << 20, Kernel: -1 << 20, BringUp: 1500 * time.Millisecond}
		}
	}
	r.Runs[len(r.Runs)-1].Use.Programs = &result.Programs{
		Operations: 100, Runs: 301, Time: 50 * time.Microsecond, Each: []result.Program{{Name: "connect4", Runs: 300, Time: 30 * time.Microsecond}, {Name: "rare", Runs: 0, Time: 1}},
	}
	page := Page{Title: "x", Sections: []Section{{Title: "y", Report: r, Base: "direct", Notes: []string{"one was skipped"}}}}
	var text, html strings.Builder
	if err := page.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if err := page.WriteHTML(&html); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"one was skipped", "CPU EACH", "OF IT THE CLIENT", "MACHINE BUSY EACH", "BPF PROGRAMS EACH", "150µs", "100µs", "200µs",
		"rules, services 1000", "10.0 MiB", "-1.0 MiB", "1.5s", "1.0 %", "connect4 3.00 × 100 ns",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text has no %q:\n%s", want, text.String())
		}
	}
	for _, want := range []string{"one was skipped", "memory of processes", "connect4 3.00 × 100 ns"} {
		if !strings.Contains(html.String(), want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if strings.Contains(text.String(), "\n  direct, services 1 ") || strings.Contains(text.String(), "rare") {
		t.Errorf("the table of memory has a contender without load balancer, or a program that did not run:\n%s", text.String())
	}
}

func TestLatencyIsDrawnByEndpointsAndFamily(t *testing.T) {
	r := example()
	for i := range r.Runs {
		l := r.Runs[i].Labels
		l[EndpointsLabel], l[ServicesLabel] = l[ServicesLabel], "10"
		l[FamilyLabel] = "ipv6"
	}
	names := []string{}
	for _, f := range Figures(r)[:2] {
		names = append(names, f.Name)
	}
	if diff := cmp.Diff([]string{"endpoints-p50-family-ipv6", "endpoints-p99-family-ipv6"}, names); diff != "" {
		t.Errorf("the first figures (-want +got):\n%s", diff)
	}
}
