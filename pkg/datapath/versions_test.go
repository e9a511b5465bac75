package datapath

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
)

const (
	byFields = "by its fields" // their names say which becomes which
	hasNone  = "it has none"
)

// comesAlong is how maps of earlier versions come along that are laid out otherwise, by
// commit; all others do as they are. 7a8b83d has its flows in a map of another kind, which flow_move.go
// reads, and its frontends behind a hash, which takefrontends.go does.
var comesAlong = map[string]map[string]string{
	"e79c009": {
		"about": byFields, "backends": byFields, "counters": byFields, "express": byFields, "flow_scratch": byFields, "flow_table": byFields, "passage": byFields, "peer_counts": byFields, "services": byFields,
		"counted_payload": hasNone, "cut_scratch": hasNone, "driver_told": hasNone, "drops_told": hasNone, "echo_rounds": hasNone, "flow_traffic": hasNone, "fragments": byFields, "peer_ways": hasNone, "peers": byFields, "stray_budgets": hasNone,
	},
	"11e8f86": {
		"about": byFields, "backends": byFields, "counters": byFields, "express": byFields, "flow_scratch": byFields, "flow_table": byFields, "passage": byFields, "peer_counts": byFields, "services": byFields,
		"counted_payload": hasNone, "cut_scratch": hasNone, "driver_told": hasNone, "drops_told": hasNone, "echo_rounds": hasNone, "flow_traffic": hasNone, "fragments": byFields, "peer_ways": hasNone, "peers": byFields, "stray_budgets": hasNone,
	},
	"793e169": {
		"about": byFields, "backends": byFields, "counters": byFields, "flow_scratch": byFields, "flow_table": byFields, "services": byFields, "slot_changes": byFields,
		"counted_payload": hasNone, "cut_scratch": hasNone, "driver_told": hasNone, "drops_told": hasNone, "echo_rounds": hasNone, "express": hasNone, "passage": hasNone, "peer_addresses": hasNone, "peer_counts": hasNone, "peer_ways": hasNone, "peers": hasNone,
		"flow_traffic": hasNone, "fragments": byFields, "stray_budgets": hasNone,
	},
	"7a8b83d": {
		"about": byFields, "backends": byFields, "counters": byFields, "frontends": byFields, "services": byFields, "slot_changes": byFields,
		"counted_payload": hasNone, "cut_scratch": hasNone, "driver_told": hasNone, "drops_told": hasNone, "echo_rounds": hasNone, "express": hasNone, "passage": hasNone, "peer_addresses": hasNone, "peer_counts": hasNone, "peer_ways": hasNone, "peers": hasNone,
		"flow_traffic": hasNone, "fragments": byFields, "stray_budgets": hasNone,
		"fallbacks": hasNone, "flow_factors": hasNone, "flow_scratch": "struct new_flow", "flow_table": "no such map",
	},
}

// mustObject reads the object of an earlier version.
func mustObject(t *testing.T, commit string) *ebpf.CollectionSpec {
	t.Helper()
	packed, err := os.ReadFile("testdata/object-" + commit + ".o.gz")
	if err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	code, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(code))
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// mustMake makes a map of an earlier version, nil where it had none of that name.
func mustMake(t *testing.T, of *ebpf.CollectionSpec, name string) *ebpf.Map {
	t.Helper()
	spec := of.Maps[name]
	for _, former := range formerly["map "+name] {
		if spec == nil {
			spec = of.Maps[former]
		}
	}
	if spec == nil {
		return nil
	}
	if spec.Type != ebpf.SkStorage {
		spec.MaxEntries = 1
	}
	m, err := ebpf.NewMap(spec)
	if err != nil {
		t.Fatalf("make %s: %v", name, err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// A change of a map's layout shows here: what an agent takes along from the version before.
func TestMapsOfEarlierVersionsComeAlong(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	now, err := loadHeadgate()
	if err != nil {
		t.Fatal(err)
	}
	for commit, want := range comesAlong {
		t.Run(commit, func(t *testing.T) {
			was, got := mustObject(t, commit), map[string]string{}
			for name, spec := range now.Maps {
				if isInternal(name) {
					continue
				}
				old := mustMake(t, was, name)
				c, err := newConversion(old, spec)
				switch {
				case old == nil:
					got[name] = "it has none"
				case err != nil:
					got[name], _, _ = strings.Cut(err.Error(), ":")
				case !c.identical:
					got[name] = "by its fields"
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("what does not come along as it is (-want +got):\n%s", diff)
			}
		})
	}
}
