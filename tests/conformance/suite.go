package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A result is what became of a test.
type result struct {
	Name    string
	Status  string // passed, failed, timedout, skipped, …
	Seconds float64
	Reason  string `json:",omitempty"` // why it did not pass
	First   string `json:",omitempty"` // what it failed with before it passed alone
}

func (r result) failed() bool { return r.Status != "passed" && r.Status != "skipped" }

// test runs what was asked for.
func (l *lab) test(running []*process) error {
	if l.Focus != "" {
		dir := filepath.Join(l.Cache, "results", "focus")
		all, err := l.suite(dir, l.Focus, l.Skip, l.Procs)
		for _, r := range ran(all) {
			say("%s %.0f s %s %s", r.Status, r.Seconds, r.Name, r.Reason)
		}
		return err
	}
	var failed error
	for _, name := range l.Groups {
		g, err := groupNamed(name)
		if err != nil {
			return err
		}
		if err := l.testGroup(g); err != nil {
			failed = errors.Join(failed, fmt.Errorf("group %s: %w", name, err))
		}
		// A test without the proxy says nothing about it.
		for _, p := range running {
			if err := p.alive(); err != nil {
				return errors.Join(failed, err)
			}
		}
	}
	return failed
}

// testGroup runs a group, and sees that packets were carried if the proxy does that and some are to be.
func (l *lab) testGroup(g group) error {
	if !l.judged().carries || !g.outside {
		return l.judge(g)
	}
	before, err := l.carried()
	if err != nil {
		return err
	}
	judged := l.judge(g)
	after, err := l.carried()
	if err == nil && after <= before {
		err = fmt.Errorf("%d packets were carried before and %d after: %s was not tried", before, after, l.judged().title)
	}
	say("%s: %d packets were carried to other nodes", g.name, after-before)
	return errors.Join(judged, err)
}

// judge runs a group, and what failed in it once more alone: a machine
// under load makes tests late.
func (l *lab) judge(g group) error {
	dir := filepath.Join(l.Cache, "results", l.Proxy, g.name)
	var cannot []string
	for _, limit := range limitsHere() {
		cannot = append(cannot, limit.tests)
	}
	all, err := l.suite(dir, g.focus, alternatives(append(cannot, g.skip)...), l.Procs)
	if err != nil {
		return err
	}
	results := ran(all)
	if len(results) == 0 {
		return errors.New("no test was run")
	}
	for i, r := range results {
		if r.failed() {
			results[i] = l.again(r, filepath.Join(dir, fmt.Sprintf("again%d", i)))
		}
	}
	left := leftOut(all, g)
	if err := l.record(g, results, left); err != nil {
		return err
	}
	bad := slices.DeleteFunc(slices.Clone(results), func(r result) bool { return !r.failed() })
	say("%s: %d of %d passed", g.name, len(results)-len(bad), len(results))
	for _, r := range bad {
		say("%s: %s: %s", r.Status, r.Name, r.Reason)
	}
	if len(bad) > 0 {
		return fmt.Errorf("%d tests failed", len(bad))
	}
	return nil
}

// again runs a test that failed alone.
func (l *lab) again(r result, dir string) result {
	say("%s: %s; once more, alone", r.Status, r.Name)
	all, err := l.suite(dir, regexp.QuoteMeta(r.Name)+"$", "", 1)
	if err != nil {
		say("run again: %v", err)
		return r
	}
	for _, second := range ran(all) {
		if second.Name == r.Name {
			second.First = r.Reason
			return second
		}
	}
	return r
}

// suite runs the tests whose names match, and returns all that there are.
func (l *lab) suite(dir, focus, skip string, procs int) ([]result, error) {
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	say("run tests: %s", log.Name())
	began := time.Now()
	cmd := exec.Command(l.bin("ginkgo"), "run", fmt.Sprintf("--procs=%d", procs), "--no-color", "--timeout=3h",
		"--focus="+focus, "--skip="+skip, l.bin("e2e.test"), "--",
		"--kubeconfig="+l.in("admin.kubeconfig"), "--provider=skeleton", fmt.Sprintf("--num-nodes=%d", l.Nodes),
		"--kubectl-path="+l.bin("kubectl"), "--report-dir="+dir, "--disable-log-dump", "--minStartupPods=0")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.Env = append(os.Environ(), "TMPDIR="+l.in("tmp"))
	ended := cmd.Run() // fails if a test does
	logs, _ := filepath.Glob(l.in("log", "proxy-*"))
	for _, path := range logs {
		if data, err := os.ReadFile(path); err == nil {
			_ = os.WriteFile(filepath.Join(dir, filepath.Base(path)), data, 0o644)
		}
	}
	all, err := readJUnit(filepath.Join(dir, "junit_01.xml"))
	if err != nil {
		return nil, errors.Join(ended, err)
	}
	say("the tests took %.0f s", time.Since(began).Seconds())
	return all, nil
}

// ran are the tests that were run, or that found themselves that they cannot.
func ran(all []result) []result {
	return slices.DeleteFunc(slices.Clone(all), func(r result) bool { return r.Status == "skipped" && r.Reason == "" })
}

// leftOut are tests of a group that a limit of the lab leaves out.
func leftOut(all []result, g group) []result {
	var left []result
	for _, r := range all {
		if r.Status != "skipped" || r.Reason != "" || !g.has(r.Name) {
			continue
		}
		for _, limit := range limitsHere() {
			if regexp.MustCompile(limit.tests).MatchString(r.Name) {
				r.Reason = limit.reason
			}
		}
		left = append(left, r)
	}
	return left
}

var blanks = regexp.MustCompile(`\s+`)

func readJUnit(path string) ([]result, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	type why struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
	var report struct {
		Suites []struct {
			Cases []struct {
				Name    string  `xml:"name,attr"`
				Status  string  `xml:"status,attr"`
				Time    float64 `xml:"time,attr"`
				Failure why     `xml:"failure"`
				Error   why     `xml:"error"`
				Skipped why     `xml:"skipped"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(data, &report); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	var all []result
	for _, s := range report.Suites {
		for _, c := range s.Cases {
			name, isTest := strings.CutPrefix(c.Name, "[It] ")
			if !isTest {
				continue
			}
			// Failures say why in their text, which ends in the place. Those out of
			// focus are skipped with that word for a reason.
			reason, _, _ := strings.Cut(c.Failure.Text+c.Error.Text, "\nIn [")
			reason = strings.TrimPrefix(reason+c.Skipped.Message, "skipped")
			reason = strings.TrimPrefix(strings.TrimSpace(blanks.ReplaceAllString(reason, " ")), "- ")
			all = append(all, result{Name: name, Status: c.Status, Seconds: c.Time, Reason: strings.TrimPrefix(reason, "[FAILED] ")})
		}
	}
	return all, nil
}
