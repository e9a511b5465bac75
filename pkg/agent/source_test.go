package agent

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/lb"
)

func TestFilesHaveTheServiceCIDRsOfTheFlagAlone(t *testing.T) {
	some := []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
	for _, flag := range [][]netip.Prefix{nil, some} {
		s, _, err := newSource(Config{Manifests: t.TempDir(), NodeName: "node-a", ServiceCIDRs: flag}, zap.NewNop(), nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var got []netip.Prefix
		if err := s.Run(ctx, func(u lb.Update) { got = u.ServiceCIDRs; cancel() }); err != nil && ctx.Err() == nil {
			t.Fatal(err)
		}
		if got == nil || !slices.Equal(got, flag) {
			t.Errorf("with --service-cidrs %v the source says %#v, want just these, and not nil, which leaves what was there", flag, got)
		}
	}
}

// nodeOf is what an agent that starts on a folder knows of its node, and says last after
// a change of the folder.
type nodeOf struct {
	t          *testing.T
	dir, state string
}

func (n nodeOf) write(text string) {
	n.t.Helper()
	if err := os.WriteFile(filepath.Join(n.dir, "node.yaml"), []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// zones starts an agent and returns the zones that it knows, one after the other, until
// there are so many. Each but the first follows a text of the file.
func (n nodeOf) zones(texts ...string) (zones []string) {
	n.t.Helper()
	s, _, err := newSource(Config{Manifests: n.dir, NodeName: "node-a", StateDir: n.state}, zap.NewNop(), nil)
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(n.t.Context(), time.Minute)
	defer cancel()
	err = s.Run(ctx, func(u lb.Update) {
		if u.Node == nil {
			return
		}
		zones = append(zones, u.Node.Zone)
		if len(texts) == 0 {
			cancel()
			return
		}
		n.write(texts[0])
		texts = texts[1:]
	})
	if err != nil || len(texts) > 0 {
		n.t.Fatalf("zones %q, %v, not written %q", zones, err, texts)
	}
	return zones
}

func TestTheNodeIsKnownAfterARestartWhileItsFileCannotBeRead(t *testing.T) {
	in := func(zone string) string {
		return "apiVersion: v1\nkind: Node\nmetadata:\n  name: node-a\n  labels: {topology.kubernetes.io/zone: " + zone + "}\n"
	}
	const broken, none = "kind: [Node\n", "apiVersion: v1\nkind: Node\nmetadata: {name: node-b}\n"
	for _, tc := range []struct {
		name        string
		before      string
		at          string   // the start
		then        []string // after it
		want        []string
		wantRestart string // with a file that cannot be read
	}{
		{"a file that cannot be read", in("a"), broken, nil, []string{"a"}, "a"},
		{"and is mended", in("a"), broken, []string{in("b")}, []string{"a", "b"}, "b"},
		{"and then says nothing of the node", in("a"), broken, []string{none}, []string{"a", ""}, ""},
		{"a file that can be read", in("a"), in("b"), nil, []string{"b"}, "b"},
		{"a file that says nothing of the node", in("a"), none, nil, []string{""}, ""},
		{"nothing was ever known", none, broken, nil, []string{""}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := nodeOf{t, t.TempDir(), t.TempDir()}
			n.write(tc.before)
			n.zones()
			n.write(tc.at)
			if got := n.zones(tc.then...); !slices.Equal(got, tc.want) {
				t.Errorf("zones %q, want %q", got, tc.want)
			}
			n.write(broken)
			if got := n.zones(); !slices.Equal(got, []string{tc.wantRestart}) {
				t.Errorf("after another start: zones %q, want %q", got, tc.wantRestart)
			}
		})
	}
}

func TestTheNodeOfAnotherNameIsNotRecalled(t *testing.T) {
	dir := t.TempDir()
	w := withLastNode{unknown: lb.Node{Name: "node-a"}, file: filepath.Join(dir, "node.json"), log: zap.NewNop()}
	for _, kept := range []string{`{"Name": "node-b", "Zone": "b"}`, "{", ""} {
		if err := os.WriteFile(w.file, []byte(kept), 0o600); err != nil {
			t.Fatal(err)
		}
		if n := w.node(lb.Update{Node: &w.unknown, Partial: true}); *n != w.unknown {
			t.Errorf("of %q: %+v", kept, n)
		}
	}
}
