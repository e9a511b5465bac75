package agent

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/pkg/plan"
)

func TestTheDevicesThatAreBalancedAreLoggedOnce(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	l := newDeviceList(PodDevicesNone, zap.New(core), func([]plan.Device) {})
	node, uplink, pod := netdev.Device{}, netdev.Device{Index: 2, Name: "eth0"}, netdev.Device{Index: 3, Name: "veth1", Pod: "default/web"}
	for _, list := range [][]netdev.Device{{node}, {node, pod}, {node, uplink}, {node, uplink, pod}, {node}} {
		l.setDevices(list)
	}
	var got []string
	for _, entry := range logs.All() {
		got = append(got, entry.Level.String()+" "+entry.Message[:9])
	}
	if diff := cmp.Diff([]string{"warn no device", "info balancing", "warn no device"}, got); diff != "" {
		t.Errorf("log lines (-want +got):\n%s", diff)
	}
}
