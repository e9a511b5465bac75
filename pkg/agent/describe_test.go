package agent

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate/headgate/pkg/lb"
)

func TestWhatIsSaidOfBackendsIsReadAsItWasWritten(t *testing.T) {
	all := lb.Descriptions{
		{Backend: lb.AddrPort{Addr: netip.MustParseAddr("10.0.0.1"), Port: 80, Protocol: lb.UDP}, State: lb.StateUnready},
		{Backend: lb.AddrPort{Addr: netip.MustParseAddr("fd00::1"), Port: 80, Protocol: lb.TCP}, Pod: lb.PodName{Namespace: "default", Name: "web-1"},
			Node: "node\ta\n", Zone: "zone-a", State: lb.StateReady},
	}
	var text strings.Builder
	if err := writeDescriptions(&text, all); err != nil {
		t.Fatal(err)
	}
	all[1].Node = "node a " // a field stays in its place
	if got, err := readDescriptions(strings.NewReader(text.String())); err != nil || !reflect.DeepEqual(got, all) {
		t.Errorf("got %v, %v, want %v", got, err, all)
	}
	if got, err := readDescriptions(strings.NewReader("")); err != nil || got == nil {
		t.Errorf("of an agent without backends: %#v, %v, want an empty list: nil is for no agent", got, err)
	}
	if _, err := readDescriptions(strings.NewReader("what\n")); err == nil {
		t.Error("something else was read")
	}
}
