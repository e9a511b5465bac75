package agent

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/pkg/lb"
)

func TestWhatIsSaidOfBackendsIsReadAsItWasWritten(t *testing.T) {
	all := lb.Descriptions{
		{Backend: lb.AddrPort{Addr: netip.MustParseAddr("10.0.0.1"), Port: 80, Protocol: lb.UDP}, State: lb.StateUnready},
		{Backend: lb.AddrPort{Addr: netip.MustParseAddr("fd00::1"), Port: 80, Protocol: lb.TCP}, Pod: lb.PodName{Namespace: "default", Name: "web-1"},
			Service: lb.ServiceName{Namespace: "default", Name: "web"}, Node: "node\ta\n", Zone: "zone-a", State: lb.StateReady},
	}
	var text strings.Builder
	if err := writeDescriptions(&text, all); err != nil {
		t.Fatal(err)
	}
	all[1].Node = "node a " // a field stays in its place
	got, err := readDescriptions(strings.NewReader(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	var read lb.Descriptions
	for d := range got.All() {
		read = append(read, *d)
	}
	if !slices.Equal(read, all) {
		t.Errorf("got %v, want %v", read, all)
	}
	if got, err := readDescriptions(strings.NewReader("")); err != nil || got == nil {
		t.Errorf("of an agent without backends: %#v, %v, want an empty list: nil is for no agent", got, err)
	}
	if _, err := readDescriptions(strings.NewReader("what\n")); err == nil {
		t.Error("something else was read")
	}
}
