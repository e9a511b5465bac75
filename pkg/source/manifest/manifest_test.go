package manifest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/source/convert"
)

// serviceYAML returns a good Service as YAML, on 7 lines.
func serviceYAML(name string, port int) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %s}
spec:
  clusterIP: 10.96.0.10
  ports:
  - port: %d
`, name, port)
}

// sliceYAML returns a good EndpointSlice as YAML.
func sliceYAML(name, service string, addrs ...string) string {
	text := fmt.Sprintf(`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: %s
  labels: {kubernetes.io/service-name: %s}
addressType: IPv4
ports:
- port: 8080
endpoints:
`, name, service)
	for _, a := range addrs {
		text += fmt.Sprintf("- addresses: [%q]\n", a)
	}
	return text
}

const nodeYAML = `apiVersion: v1
kind: Node
metadata:
  name: node-a
  labels: {topology.kubernetes.io/zone: zone-a}
`

func docs(texts ...string) string { return strings.Join(texts, "---\n") }

func serviceName(name string) lb.ServiceName { return lb.ServiceName{Namespace: "default", Name: name} }
func sliceName(name string) lb.SliceName     { return lb.SliceName{Namespace: "default", Name: name} }

// world is what a receiver of updates knows.
type world struct {
	services        map[lb.ServiceName]*lb.Service
	slices          map[lb.SliceName]*lb.Slice
	node            lb.Node
	problems        []lb.Problem
	frozen          map[lb.ServiceName]bool
	frozenEndpoints map[lb.ServiceName]bool
	partial         bool
	updates         int
}

func newWorld() *world {
	return &world{services: map[lb.ServiceName]*lb.Service{}, slices: map[lb.SliceName]*lb.Slice{}}
}

func (w *world) take(u lb.Update) {
	for k, v := range u.Services {
		if w.services[k] = v; v == nil {
			delete(w.services, k)
		}
	}
	for k, v := range u.Slices {
		if w.slices[k] = v; v == nil {
			delete(w.slices, k)
		}
	}
	if u.Node != nil {
		w.node = *u.Node
	}
	w.problems, w.frozen, w.frozenEndpoints, w.partial = u.Problems, u.Frozen, u.FrozenEndpoints, u.Partial
	w.updates++
}

// port returns the first port of a Service, 0 where there is no such Service.
func (w *world) port(name string) int {
	if s := w.services[serviceName(name)]; s != nil {
		return int(s.Ports[0].Port)
	}
	return 0
}

// endpoints returns the addresses of a slice, separated by spaces.
func (w *world) endpoints(name string) string {
	var all []string
	if s := w.slices[sliceName(name)]; s != nil {
		for _, e := range s.Endpoints {
			all = append(all, e.Addr.String())
		}
	}
	return strings.Join(all, " ")
}

func (w *world) said() []string {
	var all []string
	for _, p := range w.problems {
		all = append(all, p.Error())
	}
	return all
}

// wantSaid checks the problems, where dir stands for the directory.
func (w *world) wantSaid(tb testing.TB, want ...string) {
	tb.Helper()
	if diff := cmp.Diff(want, w.said()); diff != "" {
		tb.Error("problems (-want +got):", diff)
	}
}

// wantFrozen checks the Services that are frozen, or "endpoints of" which are.
func (w *world) wantFrozen(tb testing.TB, names ...string) {
	tb.Helper()
	services, endpoints := map[lb.ServiceName]bool{}, map[lb.ServiceName]bool{}
	for _, n := range names {
		if name, ok := strings.CutPrefix(n, "endpoints of "); ok {
			endpoints[serviceName(name)] = true
		} else {
			services[serviceName(n)] = true
		}
	}
	if diff := cmp.Diff(services, w.frozen); diff != "" {
		tb.Error("frozen (-want +got):", diff)
	}
	if diff := cmp.Diff(endpoints, w.frozenEndpoints); diff != "" {
		tb.Error("frozen endpoints (-want +got):", diff)
	}
}

// folder is a directory without a watch: each save is taken in at once.
type folder struct {
	*world
	state *state
	dec   decoder
}

func newFolder() *folder { return newFolderWith(convert.Options{}) }

func newFolderWith(opts convert.Options) *folder {
	kinds := newKinds("node-a", opts)
	return &folder{world: newWorld(), state: newState("node-a", kinds), dec: decoder{kinds}}
}

// save takes in a file, and returns whether there was anything to pass on.
func (f *folder) save(name, text string) bool {
	old := f.state.files[name]
	if old == nil {
		old = &file{name: name, path: "dir/" + name}
	}
	f.state.set(old, f.dec.read([]byte(text), old.content))
	return f.tell()
}

func (f *folder) remove(name string) bool {
	f.state.remove(f.state.files[name])
	return f.tell()
}

func (f *folder) tell() bool {
	u, ok := f.state.next()
	if ok {
		f.take(u)
	}
	return ok
}

func mustWrite(tb testing.TB, path, text string) {
	tb.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		tb.Fatal(err)
	}
}

// mustReplace saves as careful editors do: beside, then by a rename.
func mustReplace(tb testing.TB, path, text string) {
	tb.Helper()
	beside := filepath.Join(filepath.Dir(path), ".beside")
	mustWrite(tb, beside, text)
	mustDo(tb, os.Rename(beside, path))
}

func mustDo(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
