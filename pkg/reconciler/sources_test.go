package reconciler

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/pkg/plan"
)

func (f *fake) FreeSources(own map[netip.Addr]bool) (int, error) {
	list := []string{}
	for _, a := range slices.SortedFunc(maps.Keys(own), netip.Addr.Compare) {
		list = append(list, a.String())
	}
	f.mu.Lock()
	f.freed = append(f.freed, strings.Join(list, " "))
	f.mu.Unlock()
	if f.fail != nil {
		return 0, f.fail("free")
	}
	return 0, nil
}

// removals returns the sources whose flows stayed, for each removal since the last call.
func (f *fake) removals() (list []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	list, f.freed = f.freed, nil
	return list
}

// have says which addresses the node has, and its device.
func (b *bench) have(device string, node ...string) {
	addresses := map[netip.Addr]plan.AddressKind{netip.MustParseAddr("127.0.0.1"): plan.LoopbackAddress}
	for _, a := range node {
		addresses[netip.MustParseAddr(a)] = 0
	}
	b.SetNodeAddresses(addresses)
	b.SetDevices([]plan.Device{{Index: 2, Name: "eth0", IP4: netip.MustParseAddr(device)}})
	synctest.Wait()
}

func TestFlowsWithAFormerAddressAreRemoved(t *testing.T) {
	inBubble(t, &fake{}, func(t *testing.T, b *bench) {
		b.Update(web(1, 1))
		b.have("192.0.2.1", "192.0.2.1", "192.0.2.7")
		removed := func(when string, want ...string) {
			t.Helper()
			if got := b.dp.removals(); !slices.Equal(got, want) {
				t.Errorf("%s flows are removed with other sources than %q, want %q", when, got, want)
			}
		}
		pass(goneAfter - time.Second)
		removed("soon after the start")
		pass(time.Second)
		removed("after the start", "192.0.2.1 192.0.2.7")
		pass(time.Hour)
		removed("without a change")
		b.have("192.0.2.1", "192.0.2.1", "192.0.2.7", "192.0.2.8")
		pass(time.Hour)
		removed("with one more")

		b.have("192.0.2.8", "192.0.2.7", "192.0.2.8")
		pass(goneAfter - time.Second)
		removed("soon after one went")
		b.have("192.0.2.8", "192.0.2.8")
		pass(time.Second)
		removed("after one went, and soon after another one", "192.0.2.7 192.0.2.8")
		pass(goneAfter)
		removed("after the other one went", "192.0.2.8")
		pass(time.Hour)
		removed("later")

		b.have("192.0.2.9", "192.0.2.9")
		b.have("192.0.2.8", "192.0.2.8", "192.0.2.9")
		pass(time.Hour)
		removed("after one came back", "192.0.2.8 192.0.2.9")
	})
}

func TestFlowsKeepTheAddressOfADevice(t *testing.T) {
	var refused atomic.Value // the last word of calls
	refused.Store("devices")
	dp := &fake{fail: func(call string) error {
		if strings.HasSuffix(" "+call, " "+refused.Load().(string)) {
			return errors.New("busy")
		}
		return nil
	}}
	inBubble(t, dp, func(t *testing.T, b *bench) {
		b.Update(web(1, 1))
		b.SetNodeAddresses(map[netip.Addr]plan.AddressKind{})
		pass(time.Minute)
		want(t, "removals before devices are known", 0, len(dp.removals()))
		b.have("169.254.1.1", "192.0.2.1")
		pass(time.Minute)
		want(t, "removals while a device has its former address", 0, len(dp.removals()))
		refused.Store("nothing")
		pass(time.Minute)
		want(t, "removals once it has not", []string{"169.254.1.1 192.0.2.1"}, dp.removals())
		refused.Store("free")
		b.have("192.0.2.1", "192.0.2.1")
		pass(time.Minute)
		refused.Store("nothing")
		dp.removals()
		pass(time.Minute)
		want(t, "removals once the table can be read", []string{"192.0.2.1"}, dp.removals())
	})
}
