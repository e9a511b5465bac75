package cli

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/headgate/headgate/pkg/cli"
	"github.com/headgate/headgate/tests/testenv"
)

// readers are the commands that read what is pinned: list and show of every noun, and what looks at many of them.
func readers() (all [][]string) {
	for _, c := range cli.Command("v1.2.3").Commands() {
		if list, _, err := c.Find([]string{"list"}); err == nil && list.Name() == "list" {
			all = append(all, []string{c.Name(), "list"}, []string{c.Name(), "show", "nothing"})
		}
	}
	return append(all, []string{"status"}, []string{"explain", "nothing"}, []string{"explain", "--from", "192.0.2.9", "nothing"}, []string{"top", "--once", "nothing"},
		[]string{"trace", "--for", "100ms", "nothing"}, []string{"flow", "watch", "--for", "100ms", "nothing"}, []string{"flow", "count"}, []string{"drain", "10.244.1.1"}, []string{"flush", "nothing"})
}

// wrong is a command that is to fail: with which code, and which line.
type wrong struct {
	root, state string
	code        int
	line        string
}

// want runs a command, which is to print one line on stderr and nothing else.
func (w wrong) want(t *testing.T, args []string) {
	t.Helper()
	code, out, said := w.run(args)
	if code != w.code || strings.Count(said, "\n") != 1 || !regexp.MustCompile("^headgate: (?:"+w.line+")").MatchString(said) || out != "" {
		t.Errorf("headgate %s ends with %d, want %d with one line %q; it says:\n%s%s", strings.Join(args, " "), code, w.code, w.line, out, said)
	}
}

// run runs a command in this process.
func (w wrong) run(args []string) (code int, out, said string) {
	var stdout, stderr bytes.Buffer
	code = cli.Run(append(slices.Clone(args), "--bpf-root", w.root, "--state-dir", w.state), "v1.2.3", &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// ofReport says whether a command reads what the agent says, and needs no maps.
func ofReport(args []string) bool { return args[0] == "problem" }

func TestWhatIsWrongIsOneLineAndAnExitCode(t *testing.T) {
	testenv.Need(t)
	root := testenv.BPFRoot(t)
	w := wrong{root: root, state: t.TempDir()}
	for _, args := range readers() {
		w := w
		if w.code, w.line = 2, "headgate is not loaded: nothing is pinned below "; !ofReport(args) {
			w.want(t, args)
		}
	}
	loadSome(t, root)
	for _, args := range readers() {
		w := w
		w.code, w.line = 1, `no [A-Za-z ]+ is "?nothing"?: |.*"10.244.1.1"`
		if ofReport(args) {
			w.line = "no agent runs, so problems are unknown: start one"
		}
		if args[len(args)-1] == "nothing" {
			w.want(t, args)
		}
	}
	for _, args := range [][]string{{"service", "list", "-n", "nowhere"}, {"flow", "list", "-n", "nowhere"}, {"backend", "list", "--namespace", "nowhere"}} {
		w := w
		w.code, w.line = 1, `no Service is in namespace "nowhere"`
		w.want(t, args)
	}
	for _, args := range [][]string{{"diff"}, {"log-level"}, {"ready"}, {"log-level", "debug"}} {
		w := w
		w.code, w.line = 1, ".*no agent answers at "
		w.want(t, args)
	}
}

// Nobody but root may read what is pinned, and is told so.
func TestSomebodyElseIsToldToUseSudo(t *testing.T) {
	testenv.Need(t)
	root := testenv.BPFRoot(t)
	loadSome(t, root)
	dir, err := os.MkdirTemp("", "headgate-nobody-") // that of the test is for root alone
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	program, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), os.WriteFile(filepath.Join(dir, "headgate"), program, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range readers() {
		if ofReport(args) {
			continue
		}
		cmd := exec.Command(filepath.Join(dir, "headgate"), append(slices.Clone(args), "--bpf-root", root, "--state-dir", dir)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		cmd.Dir = dir
		out, _ := cmd.CombinedOutput() // the code tells
		if code, said := cmd.ProcessState.ExitCode(), string(out); code != 1 || strings.Count(said, "\n") != 1 || !strings.HasSuffix(said, "permission denied; run it with sudo\n") {
			t.Errorf("%q ends with %d and says:\n%s", args, code, said)
		}
	}
}

// Maps of another version have other values, or there is one less.
func TestMapsOfAnotherVersionAreSaidToBeThat(t *testing.T) {
	testenv.Need(t)
	root := testenv.BPFRoot(t)
	loadSome(t, root)
	w := wrong{root: root, state: t.TempDir(), code: 1, line: "the maps below .* were made by another version: use the headgate that made them\n$"}
	path := filepath.Join(root, "maps", "services")
	for _, spec := range []*ebpf.MapSpec{nil, {Type: ebpf.Array, KeySize: 4, ValueSize: 24, MaxEntries: 4}} {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if spec != nil {
			m, err := ebpf.NewMap(spec)
			if err == nil {
				err = errors.Join(m.Pin(path), m.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, args := range readers() {
			if !ofReport(args) {
				w.want(t, args)
			}
		}
	}
}

// garbled is how often some maps are filled with garbage.
const garbled = 60

// Of maps that hold garbage something is shown, or what is wrong with them in a line.
func TestGarbageInTheMapsIsShownOrSaidInOneLine(t *testing.T) {
	testenv.Need(t)
	root := testenv.BPFRoot(t)
	loadSome(t, root)
	r := rand.New(rand.NewPCG(1, 1))
	w := wrong{root: root, state: t.TempDir()}
	all := append(readers(), []string{"explain", "10.96.0.10:80"}, []string{"service", "show", "web"}, []string{"table", "list", "-o", "wide"}, []string{"backend", "list", "-o", "yaml"}, []string{"sysdump", filepath.Join(t.TempDir(), "all.tar.gz")})
	said := 0
	for range garbled {
		name := garble(t, r, root)
		args := all[r.IntN(len(all))]
		if args[0] == "explain" {
			continue // has a process call, which this one is not
		}
		code, out, wrong := w.run(args)
		if code > 3 || strings.Count(wrong, "\n") > 1 || code == 1 && wrong == "" || strings.Contains(out+wrong, "\x00") {
			t.Errorf("after garbage in %s %q ends with %d and says:\n%.1000s%s", name, args, code, out, wrong)
		}
		said += code
	}
	if said == 0 {
		t.Error("nothing was wrong with garbage: nothing is tested")
	}
}

// garble writes some garbage into one of the maps, and returns its name.
func garble(t *testing.T, r *rand.Rand, root string) string {
	t.Helper()
	name := []string{"frontends", "fallbacks", "slots", "backends", "services", "peers", "affinities", "source_ranges", "addresses", "devices", "flow_table"}[r.IntN(11)]
	m, err := ebpf.LoadPinnedMap(filepath.Join(root, "maps", name), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	value := make([]byte, m.ValueSize())
	for range 20 {
		for i := range value {
			bits := r.Uint32()
			value[i] = byte(bits & (bits >> 8)) // most are 0
		}
		key := make([]byte, m.KeySize())
		for i := range key {
			key[i] = byte(r.Uint32())
		}
		if m.Type() == ebpf.Array {
			clear(key[1:]) // one of the first, where something is read
			key[0] %= byte(min(m.MaxEntries(), 255))
		}
		_ = m.Put(key, value) // a prefix may be none
	}
	return name
}

// loadSome brings a Service into force, as an agent does that has ended since.
func loadSome(t *testing.T, root string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "web.yaml"), []byte(someService), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := loadManifests(dir, testenv.Cgroup(t), root); err != nil {
		t.Fatal(err)
	}
}

const someService = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {clusterIP: 10.96.0.10, sessionAffinity: ClientIP, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.244.1.1]}, {addresses: [10.244.1.2]}]
`
