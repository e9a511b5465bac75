package datapath

import (
	"maps"
	"strings"
	"testing"
)

func TestEachLoadTimeConstantIsOneField(t *testing.T) {
	spec, err := loadHeadgate()
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{SocketEntries: 64, Flows: 1024, SNATPorts: Ports{16384, 16399}, EjectAfter: 7, Redirect: true, HashKey: [2]uint64{1, 2}}
	values, err := cfg.constants()
	if err != nil {
		t.Fatal(err)
	}
	if err := wantConstants(spec, values); err != nil {
		t.Error(err)
	}
	if err := setConstants(spec, values); err != nil {
		t.Fatal(err)
	}
	var after, mask uint32
	var redirect bool
	var key [2]uint64
	for name, into := range map[string]any{"eject_after": &after, "socket_nat_mask": &mask, "redirect_flows": &redirect, "hash_key": &key} {
		if err := spec.Variables[name].Get(into); err != nil {
			t.Error(err)
		}
	}
	if after != 7 || mask != 63 || !redirect || key != cfg.HashKey {
		t.Errorf("the object has eject_after %d, socket_nat_mask %d, redirect_flows %v, hash_key %v", after, mask, redirect, key)
	}
}

func TestAConstantWithoutAFieldAndAFieldWithoutAConstantAreErrors(t *testing.T) {
	spec, err := loadHeadgate()
	if err != nil {
		t.Fatal(err)
	}
	values, err := Config{}.constants()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name  string
		spoil func(map[string]any)
		says  string
	}{
		{"a constant without a field", func(v map[string]any) { delete(v, "tick_us") }, "constant tick_us: the object has it"},
		{"a field without a constant", func(v map[string]any) { v["tock_us"] = uint32(1) }, "constant tock_us: a field has it"},
	} {
		spoilt := maps.Clone(values)
		tc.spoil(spoilt)
		if err := wantConstants(spec, spoilt); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: error %v, want one with %q", tc.name, err, tc.says)
		}
	}
	values["tick_us"] = uint64(1)
	if err := setConstants(spec, values); err == nil || !strings.Contains(err.Error(), "tick_us") {
		t.Errorf("a field of another size than its constant: error %v", err)
	}
}
