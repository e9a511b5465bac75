package netns_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/tests/testenv"
)

// replacement is of a piece of text that a header has once.
type replacement struct{ file, now, then string }

// withoutEjection is the layout of a version that did not say who avoids a backend.
var withoutEjection = replacement{"abi/frontend_types.h", "#include \"types.h\"", "#include \"types.h\"\n#define ejection former_ejection"}

// formerNames are those that maps, structs and members had in the version before.
var formerNames = map[string]string{
	"address_filter":        "known_addresses",
	"flow_filter":           "known_ends",
	"filter_chunk":          "known_bits",
	"members":               "known",
	"ejected_since_s":       "suspect_since_s",
	"retries":               "trials",
	"backend_ejected":       "backend_suspected",
	"backend_retry":         "backend_trial",
	"fragment_queue":        "held",
	"frame_scratch":         "held_scratch",
	"queued_key":            "held_key",
	"queued_frame":          "held_frame",
	"fragment_queued":       "fragment_held",
	"half_open_flows":       "brief_flows",
	"flows_migrated":        "settled",
	"next_half_open":        "next_brief_flow",
	"ring_slot":             "place",
	"socket_nat":            "promises",
	"stored_entries":        "stored_promises",
	"entry":                 "promise",
	"socket_slot":           "promise_slot",
	"socket_entry_stored":   "promise_stored",
	"socket_entry_replaced": "promise_replaced",
	"socket_entry_lost":     "promise_lost",
}

func nameNow(former string) string {
	for now, name := range formerNames {
		if name == former {
			return now
		}
	}
	return former
}

// renamed gives everything in the headers its former name.
func renamed() replacement {
	const once = "#pragma once\n"
	r := replacement{"abi/types.h", once, once}
	for now, former := range formerNames {
		r.then += fmt.Sprintf("#define %s %s\n", now, former)
	}
	return r
}

// otherLayout is what another version of the headers has otherwise: members in
// another order, and one that there is no more.
var otherLayout = []replacement{
	{"abi/socket_types.h", `	struct addr_port frontend;
	struct addr_port backend;
	__u32 backend_id;
	__u32 slot;  /* the one that named the backend */
	__u64 netns; /* cookie of the network namespace of the socket */
`, `	__u64 netns;
	__u32 slot;
	__u32 backend_id;
	struct addr_port backend;
	struct addr_port frontend;
`},
	{"abi/frontend_types.h", `	__s32 in_flight;       /* connections and flows that are open */
	__u32 failed_by;       /* hash of the client that failed last */
`, `	__u32 failed_by;
	__u32 next_retry;
	enum ejection ejection;
	__u8 retries;
	__u16 failures;
	__s32 in_flight;
`},
	{"abi/frontend_types.h", `	__u32 next_retry;      /* of an ejected backend */
`, ""},
	{"abi/frontend_types.h", `	__u16 failures;	       /* in a row, of all clients */
`, ""},
	{"abi/frontend_types.h", `	__u8 retries;	       /* since it was ejected */
	enum ejection ejection;
`, ""},
	{"abi/types.h", "	char name[SERVICE_NAME_LEN]; ", "	__u64 of_old; char name[SERVICE_NAME_LEN]; "},
}

// formerFrontends is how frontends stood in the version before: behind a hash of their
// addresses, each with what it falls back to.
var formerFrontends = []replacement{
	{"abi/frontend_types.h", `	struct view views[CLIENT_VIEWS] __attribute__((aligned(8)));
`, `	struct view views[VIEWS] __attribute__((aligned(8)));
	__u32 spill;
`},
	{"abi/frontend_types.h", `/* What only frontends with FRONTEND_FALLS_BACK need. */
`, `#define fallbacks former_fallbacks
`},
	{"abi/frontend_types.h", `_Static_assert(sizeof(struct frontend) == 64, "one cache line");
`, ""},
	{"abi/maps.h", `	__type(key, __u32);
	__type(value, struct fallbacks);
} fallbacks SEC(".maps");
`, `	__type(key, __u32);
	__type(value, struct fallbacks);
} unused;
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct addr_port);
	__type(value, __u32);
} frontend_ids SEC(".maps");
`},
	{"lb/frontend.h", `	struct frontend *f = frontend_in(frontend_hash(at) & frontends_mask);
`, `	__u32 *id = bpf_map_lookup_elem(&frontend_ids, at);
	if (frontends_mask == 0)
		return id ? frontend_in(*id) : NULL;
	struct frontend *f = frontend_in(frontend_hash(at) & frontends_mask);
`},
	{"lb/select.h", `	__u32 place = f->place;

	return bpf_map_lookup_elem(&fallbacks, &place);
`, `	return (struct fallbacks *)&f->views[CLIENT_VIEWS];
`},
}

// buildVariant compiles bpf/ with former names, and with what else is otherwise.
func buildVariant(t *testing.T, other ...replacement) *ebpf.CollectionSpec {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../bpf")); err != nil {
		t.Fatal(err)
	}
	for _, r := range slices.Concat(other, formerFrontends, []replacement{renamed()}) {
		file := filepath.Join(dir, r.file)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(string(text), r.now) != 1 {
			t.Fatalf("%s has not once:\n%s", r.file, r.now)
		}
		text = []byte(strings.Replace(string(text), r.now, r.then, 1))
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return mustSpec(t, testenv.Compile(t, filepath.Join(dir, "headgate.bpf.c")))
}

func mustSpec(tb testing.TB, object string) *ebpf.CollectionSpec {
	tb.Helper()
	spec, err := ebpf.LoadCollectionSpec(object)
	if err != nil {
		tb.Fatal(err)
	}
	return spec
}

// downgrade makes what is pinned below root what the variant would have made:
// its maps with the same content, its programs behind the same links, and sock_ops in
// place of programs at tracepoints.
func downgrade(t *testing.T, n *node, variant *ebpf.CollectionSpec) {
	t.Helper()
	testenv.NeedStorageIterators(t) // the variant is loaded as a whole
	root := n.cfg.Root
	now := mustSpec(t, "../../pkg/datapath/headgate_bpfel.o")
	pinned := map[string]*ebpf.Map{}
	for name, spec := range variant.Maps {
		if name[0] == '.' {
			continue
		}
		if name == "frontend_ids" {
			spec.MaxEntries = 4096
			continue
		}
		pinned[name] = mustPinned(t, filepath.Join(root, "maps", nameNow(name)))
		spec.MaxEntries = pinned[name].MaxEntries()
	}
	setConstants(t, variant, pinned[formerNames["socket_nat"]].MaxEntries())
	c, err := ebpf.NewCollection(variant)
	if err != nil {
		t.Fatalf("load the variant: %v", err)
	}
	defer c.Close()
	fallbacks := mustPinned(t, filepath.Join(root, "maps", "fallbacks"))
	recodeFrontends(t, pinned["frontends"], fallbacks, now, c, variant)
	for _, do := range []error{os.Remove(filepath.Join(root, "maps", "fallbacks")), c.Maps["frontend_ids"].Pin(filepath.Join(root, "maps", "frontend_ids"))} {
		if do != nil {
			t.Fatal(do)
		}
	}
	for name, m := range pinned {
		if name != "frontends" && m.Type() != ebpf.SkStorage && nameNow(name) != "socket_nat" && name != "about" { // that of another object
			recode(t, m, now.Maps[nameNow(name)], c.Maps[name], variant.Maps[name])
		}
		if err := os.Remove(filepath.Join(root, "maps", nameNow(name))); err != nil {
			t.Fatal(err)
		}
		if err := c.Maps[name].Pin(filepath.Join(root, "maps", name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range programs {
		l := mustLink(t, filepath.Join(root, "links", name))
		err := l.Update(c.Programs[name])
		l.Close()
		if errors.Is(err, link.ErrNotSupported) { // of a tracepoint, where versions before had sock_ops
			err = os.Remove(filepath.Join(root, "links", name))
		}
		if err != nil {
			t.Fatalf("put the variant in force at %s: %v", name, err)
		}
	}
	n.attach("sock_ops", c.Programs["sock_ops"], "sock_ops")
}

// recodeFrontends gives each frontend an ID, and puts that behind its address.
func recodeFrontends(t *testing.T, frontends, fallbacks *ebpf.Map, now *ebpf.CollectionSpec, to *ebpf.Collection, variant *ebpf.CollectionSpec) {
	t.Helper()
	var place, id uint32
	var value, behind []byte
	for entries := frontends.Iterate(); entries.Next(&place, &value); {
		f := decode(now.Maps["frontends"].Value, value).(map[string]any)
		at := f["at"].(map[string]any)
		if protocol := at["protocol"].([]byte)[0]; protocol == 0 || protocol == 255 {
			continue
		}
		if err := fallbacks.Lookup(place, &behind); err != nil {
			t.Fatal(err)
		}
		more := decode(now.Maps["fallbacks"].Value, behind).(map[string]any)
		f["views"] = append(f["views"].([]any), more["to"].([]any)...)
		f["spill"] = more["spill"]
		delete(f, "at")
		id++
		element, key := make([]byte, to.Maps["frontends"].ValueSize()), make([]byte, to.Maps["frontend_ids"].KeySize())
		encode(variant.Maps["frontends"].Value, f, element)
		encode(variant.Maps["frontend_ids"].Key, at, key)
		for _, err := range []error{to.Maps["frontends"].Put(id, element), to.Maps["frontend_ids"].Put(key, id)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func setConstants(tb testing.TB, spec *ebpf.CollectionSpec, entries uint32) {
	tb.Helper()
	s := mustSocket(tb, inet, unix.SOCK_DGRAM)
	cookie, err := unix.GetsockoptUint64(s.fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		tb.Fatal(err)
	}
	for name, value := range map[string]any{"node_netns_cookie": cookie, "socket_nat_mask": entries - 1} {
		if err := spec.Variables[name].Set(value); err != nil {
			tb.Fatal(err)
		}
	}
}

func mustPinned(tb testing.TB, path string) *ebpf.Map {
	tb.Helper()
	m, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { m.Close() })
	return m
}

func mustLink(tb testing.TB, path string) link.Link {
	tb.Helper()
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.Close() })
	return l
}

// recode copies a map into one with another layout, member by member. It knows
// nothing of how the product does the same.
func recode(t *testing.T, from *ebpf.Map, fromSpec *ebpf.MapSpec, to *ebpf.Map, toSpec *ebpf.MapSpec) {
	t.Helper()
	convert := func(b []byte, was, now btf.Type, size uint32) []byte {
		out := make([]byte, size)
		encode(now, decode(was, b), out)
		return out
	}
	key := make([]byte, from.KeySize())
	put := func(value any) {
		t.Helper()
		if err := to.Put(convert(key, fromSpec.Key, toSpec.Key, to.KeySize()), value); err != nil {
			t.Fatalf("fill %s: %v", toSpec.Name, err)
		}
	}
	entries := from.Iterate()
	if from.Type() == ebpf.PerCPUArray {
		var values [][]byte
		for entries.Next(&key, &values) {
			for i, v := range values {
				values[i] = convert(v, fromSpec.Value, toSpec.Value, to.ValueSize())
			}
			put(values)
		}
	} else {
		var value []byte
		for entries.Next(&key, &value) {
			put(convert(value, fromSpec.Value, toSpec.Value, to.ValueSize()))
		}
	}
	if err := entries.Err(); err != nil {
		t.Fatal(err)
	}
}

// decode reads a value by its type: structs by the names of their members,
// arrays element by element, anything else as bytes.
func decode(t btf.Type, b []byte) any {
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Struct:
		out := map[string]any{}
		for _, m := range t.Members {
			out[m.Name] = decode(m.Type, b[m.Offset.Bytes():])
		}
		return out
	case *btf.Array:
		var out []any
		for i := range int(t.Nelems) {
			out = append(out, decode(t.Type, b[i*mustSize(t.Type):]))
		}
		return out
	default:
		return slices.Clone(b[:mustSize(t)])
	}
}

// encode is the reverse; what the value does not have stays zero.
func encode(t btf.Type, v any, out []byte) {
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Struct:
		for _, m := range t.Members {
			if member, ok := v.(map[string]any)[nameNow(m.Name)]; ok {
				encode(m.Type, member, out[m.Offset.Bytes():])
			}
		}
	case *btf.Array:
		for i, element := range v.([]any) {
			encode(t.Type, element, out[i*mustSize(t.Type):])
		}
	default:
		copy(out[:mustSize(t)], v.([]byte))
	}
}

func mustSize(t btf.Type) int {
	n, err := btf.Sizeof(t)
	if err != nil {
		panic(fmt.Sprintf("size of %v: %v", t, err)) // no type of a map is so
	}
	return n
}
