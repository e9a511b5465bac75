package datapath

import (
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// A field that is encoded or decoded nowhere is lost when the agent starts again.
// Every field gets a value by reflection, those added later too.
func TestEveryFieldIsDecodedAsItWasEncoded(t *testing.T) {
	for seed := range uint64(100) {
		r := &filler{tb: t, rand: rand.New(rand.NewPCG(seed, 0))}
		f := filled[plan.Frontend](r)
		for i := lb.FallbackZone; i < lb.NumViews; i++ { // these are of clients only
			f.Views[i].NoLocal, f.Views[i].FallsBack, f.Views[i].Why = false, false, 0
		}
		wantSame(t, f, decodeFrontend(encodeFrontend(f)))
		backend := filled[lb.AddrPort](r)
		wantSame(t, backend, decodeAddrPort(encodeAddrPort(backend)))
		table := filled[plan.Table](r)
		wantSame(t, table, decodeTable(encodeTable(table)))
		service := filled[plan.Service](r)
		parsed, err := parseService(service.String())
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, service, parsed)
		peer := filled[plan.Peer](r)
		wantSame(t, peer, decodePeer(encodePeer(peer)))
		clients := filled[plan.SourceRange](r)
		wantSame(t, clients, decodeSourceRange(encodeSourceRange(clients)))
		kind := plan.AddressKind(1 + r.rand.IntN(int(2*plan.OwnAddress-1)))
		wantSame(t, kind, decodeAddress(encodeAddress(kind)))
	}
}

func wantSame(tb testing.TB, want, got any) {
	tb.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		tb.Fatalf("decoded (-encoded +decoded):\n%s", diff)
	}
}

// filler sets fields to values that they may have; numbers are never 0.
type filler struct {
	tb   testing.TB
	rand *rand.Rand
}

func filled[T any](r *filler) T {
	var out T
	r.fill(reflect.ValueOf(&out).Elem())
	return out
}

// value returns a value of a type of which not every number is one; nil for others.
func (r *filler) value(t reflect.Type) any {
	var addr [16]byte
	for i := range addr {
		addr[i] = byte(1 + r.rand.IntN(255))
	}
	switch t {
	case reflect.TypeFor[lb.Algorithm]():
		return lb.Random + 1 + lb.Algorithm(r.rand.IntN(int(lb.Latency-lb.Random)))
	case reflect.TypeFor[lb.FrontendKind]():
		return lb.FrontendKind(1 + r.rand.IntN(int(lb.ExternalIP)))
	case reflect.TypeFor[lb.Switch]():
		return lb.SwitchTo(r.rand.IntN(2) == 0)
	case reflect.TypeFor[lb.Why]():
		return 1 + lb.Why(r.rand.IntN(int(lb.WhyWeightless)))
	case reflect.TypeFor[lb.Protocol]():
		return []lb.Protocol{lb.TCP, lb.UDP, lb.SCTP}[r.rand.IntN(3)]
	case reflect.TypeFor[netip.Addr]():
		return netip.AddrFrom16(addr)
	case reflect.TypeFor[netip.Prefix]():
		return netip.PrefixFrom(netip.AddrFrom16(addr), 1+r.rand.IntN(128))
	}
	return nil
}

func (r *filler) fill(v reflect.Value) {
	if known := r.value(v.Type()); known != nil {
		v.Set(reflect.ValueOf(known))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(r.rand.IntN(2) == 0)
	case reflect.Uint16:
		v.SetUint(1 + r.rand.Uint64N(1<<16-1))
	case reflect.Uint64:
		v.SetUint(1 + r.rand.Uint64N(1<<63))
	case reflect.Uint32: // sizes of tables have 24 bits
		v.SetUint(1 + r.rand.Uint64N(1<<24-1))
	case reflect.String:
		v.SetString(string(rune('a' + r.rand.IntN(26))))
	case reflect.Array:
		for i := range v.Len() {
			r.fill(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			r.fill(v.Field(i))
		}
	default:
		r.tb.Fatalf("no value for %s: say here which it may have", v.Type())
	}
}
