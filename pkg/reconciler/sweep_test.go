package reconciler

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// cleared is a datapath that tells of every backend that is cleared.
type cleared struct {
	plan.Model
	ids chan uint32
}

func (d *cleared) Content() (plan.Content, error) { return d.Model.Content(), nil }
func (d *cleared) Reset() error                   { return nil }
func (d *cleared) Reserve(plan.Sizes) error       { return nil }
func (d *cleared) Attach() error                  { return nil }

func (d *cleared) DestroySockets([]plan.Loss) error { return nil }

func (d *cleared) Apply(ops []plan.Op) (int, error) {
	for _, op := range ops {
		d.Model.Apply(op)
		if o, ok := op.(plan.ClearBackend); ok {
			select {
			case d.ids <- o.ID:
			default:
			}
		}
	}
	return len(ops), nil
}

func TestChangesThatNeverEndAreSwept(t *testing.T) {
	dp := &cleared{ids: make(chan uint32, 1)}
	r, err := New(zap.NewNop(), dp, plan.Sizes{})
	if err != nil {
		t.Fatal(err)
	}
	r.sweepAfter, r.sweepBy = time.Hour, 20*time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { r.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	r.SetNodeAddresses(map[netip.Addr]plan.AddressKind{})
	name := lb.ServiceName{Namespace: "default", Name: "web"}
	port := lb.ServicePort{Protocol: lb.TCP, Port: 80}
	r.Update(lb.Update{Services: map[lb.ServiceName]*lb.Service{
		name: {ServiceName: name, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}, Ports: []lb.ServicePort{port}},
	}})
	for i, deadline := 0, time.After(30*time.Second); ; i++ {
		slice := &lb.Slice{
			SliceName: lb.SliceName(name), Service: name.Name, Ports: []lb.SlicePort{{Protocol: lb.TCP, Port: 8080}},
			Endpoints: []lb.Endpoint{{Addr: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), Ready: true, Serving: true}},
		}
		r.Update(lb.Update{Slices: map[lb.SliceName]*lb.Slice{slice.SliceName: slice}})
		select {
		case <-dp.ids:
			return
		case <-deadline:
			t.Fatal("what the changes retired is never cleared")
		case <-time.After(time.Millisecond):
		}
	}
}
