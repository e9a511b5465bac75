package lb

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"
)

// A field that equal forgets is a change that never reaches the kernel. Every
// field of every type is changed in turn, those added later too.
func TestEqualSeesEveryField(t *testing.T) {
	t.Run("Service", func(t *testing.T) { checkFields(t, (*Service).equal, "File") })
	t.Run("Slice", func(t *testing.T) { checkFields(t, (*Slice).equal, "LastChangeTrigger") })
	t.Run("Endpoint", func(t *testing.T) {
		checkFields(t, func(a, b *Endpoint) bool {
			return (&Slice{Endpoints: []Endpoint{*a}}).equal(&Slice{Endpoints: []Endpoint{*b}})
		})
	})
	t.Run("ServicePort", func(t *testing.T) {
		checkFields(t, func(a, b *ServicePort) bool {
			return (&Service{Ports: []ServicePort{*a}}).equal(&Service{Ports: []ServicePort{*b}})
		})
	})
	t.Run("SlicePort", func(t *testing.T) {
		checkFields(t, func(a, b *SlicePort) bool {
			return (&Slice{Ports: []SlicePort{*a}}).equal(&Slice{Ports: []SlicePort{*b}})
		})
	})
	t.Run("endpoints of a Slice", func(t *testing.T) {
		a := &Slice{Endpoints: []Endpoint{{Ready: true}}}
		if a.equal(&Slice{Endpoints: []Endpoint{{Ready: false}}}) || !a.equal(&Slice{Endpoints: []Endpoint{{Ready: true}}}) {
			t.Error("endpoints are not compared")
		}
	})
}

// checkFields compares the zero T with ones that differ in one field each; only
// the fields left out may go unseen, and must.
func checkFields[T any](t *testing.T, equal func(a, b *T) bool, leftOut ...string) {
	if !equal(new(T), new(T)) {
		t.Error("two zero values differ")
	}
	for i := range reflect.TypeFor[T]().NumField() {
		var changed T
		v := reflect.ValueOf(&changed).Elem()
		name := v.Type().Field(i).Name
		mustSet(t, v.Field(i))
		want := slices.Contains(leftOut, name)
		if equal(new(T), &changed) != want || equal(&changed, new(T)) != want {
			t.Errorf("field %s: equal is not %v", name, want)
		}
	}
}

// mustSet gives a field some value that is not its zero value.
func mustSet(tb testing.TB, v reflect.Value) {
	tb.Helper()
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint(1)
	case reflect.Int64:
		v.SetInt(1)
	case reflect.String:
		v.SetString("x")
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[netip.Addr]() {
			v.Set(reflect.ValueOf(netip.IPv4Unspecified()))
			return
		}
		if v.Type() == reflect.TypeFor[Shared]() {
			v.Set(reflect.ValueOf(Topology{Node: "x"}.Share()))
			return
		}
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(1, 0)))
			return
		}
		mustSet(tb, v.Field(0))
	default:
		tb.Fatalf("a field of kind %s: teach mustSet", v.Kind())
	}
}

func TestNothingEqualsOnlyNothing(t *testing.T) {
	if !EqualServices(nil, nil) || EqualServices(nil, &Service{}) || EqualServices(&Service{}, nil) || !EqualServices(&Service{}, &Service{}) {
		t.Error("Services")
	}
	if !EqualSlices(nil, nil) || EqualSlices(nil, &Slice{}) || EqualSlices(&Slice{}, nil) || !EqualSlices(&Slice{}, &Slice{}) {
		t.Error("slices")
	}
}
