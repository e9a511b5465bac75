package manifest

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkLoad reads 10,000 Services with a slice of 10 endpoints each, one
// file a Service, from nothing to the first update.
func BenchmarkLoad(b *testing.B) {
	dir := b.TempDir()
	mustFill(b, dir, 10_000)
	for b.Loop() {
		r := mustRun(b, dir)
		if len(r.services) != 10_000 {
			b.Fatalf("got %d services", len(r.services))
		}
	}
}

// BenchmarkSave changes one endpoint among 10,000 Services, from the save to the
// update. The debounce of 2 ms is part of it.
func BenchmarkSave(b *testing.B) {
	dir := b.TempDir()
	mustFill(b, dir, 10_000)
	r := mustRun(b, dir)
	i := 0
	for b.Loop() {
		i++
		addr := fmt.Sprintf("10.1.%d.%d", i/256%256, i%256)
		mustReplace(b, filepath.Join(dir, "extra.yaml"), sliceYAML("extra", "web-1", addr))
		r.until(b, addr, func() bool { return r.endpoints("extra") == addr })
	}
}

func mustFill(tb testing.TB, dir string, services int) {
	tb.Helper()
	for i := range services {
		name := fmt.Sprintf("web-%d", i)
		var addrs []string
		for j := range 10 {
			addrs = append(addrs, fmt.Sprintf("10.%d.%d.%d", j, i/256, i%256+1))
		}
		mustWrite(tb, filepath.Join(dir, name+".yaml"), docs(serviceYAML(name, 80), sliceYAML(name, name, addrs...)))
	}
}

func TestASaveIsSeenSoonAmongManyFiles(t *testing.T) {
	dir := t.TempDir()
	mustFill(t, dir, 1000)
	r := mustRun(t, dir)
	start := time.Now()
	mustWrite(t, r.path("web-7.yaml"), docs(serviceYAML("web-7", 81), sliceYAML("web-7", "web-7", "10.0.0.1")))
	r.untilPort(t, "web-7", 81)
	if took := time.Since(start); took > time.Second {
		t.Errorf("took %v", took)
	}
}
