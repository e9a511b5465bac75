package manifest

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/source/convert"
)

func TestExternalIPsAreThoseThatTheOperatorHonours(t *testing.T) {
	web := strings.Replace(serviceYAML("web", 80), "spec:\n", "spec:\n  externalIPs: [203.0.113.1, 198.51.100.1]\n", 1)
	for _, tc := range []struct {
		name   string
		policy convert.ExternalIPs
		want   []string
		said   []string
	}{
		{"all", convert.ExternalIPs{}, []string{"203.0.113.1", "198.51.100.1"}, nil},
		{"none", convert.ExternalIPs{Off: true}, nil, []string{
			`dir/a.yaml:1: Service default/web: spec.externalIPs "203.0.113.1": is not used: external IPs are switched off on this node; remove it, or ask the operator to allow it with --external-ips`,
			`dir/a.yaml:1: Service default/web: spec.externalIPs "198.51.100.1": is not used: external IPs are switched off on this node; remove it, or ask the operator to allow it with --external-ips`}},
		{"some", convert.ExternalIPs{Allowed: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}}, []string{"203.0.113.1"}, []string{
			`dir/a.yaml:1: Service default/web: spec.externalIPs "198.51.100.1": is not used: it is outside the prefixes that external IPs may have; take an address within them, or ask the operator to add its prefix to --external-ips`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFolderWith(convert.Options{ExternalIPs: tc.policy})
			f.save("a.yaml", web)
			if f.port("web") != 80 {
				t.Fatal("the Service is not there")
			}
			var got []string
			for _, a := range f.services[serviceName("web")].ExternalIPs {
				got = append(got, a.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("external IPs (-want +got):\n%s", diff)
			}
			f.wantSaid(t, tc.said...)
			f.wantFrozen(t)
		})
	}
}

func TestASourceFollowsWhatItIsTold(t *testing.T) {
	dir := t.TempDir()
	mustWrite(t, filepath.Join(dir, "web.yaml"), strings.Replace(serviceYAML("web", 80), "spec:\n", "spec:\n  externalIPs: [203.0.113.1]\n", 1))
	ctx, cancel := context.WithCancel(t.Context())
	var got lb.Update
	mustDo(t, New(dir, "node-a").Convert(convert.Options{ExternalIPs: convert.ExternalIPs{Off: true}}).Run(ctx, func(u lb.Update) {
		got = u
		cancel()
	}))
	if web := got.Services[serviceName("web")]; web == nil || len(web.ExternalIPs) > 0 || len(got.Problems) != 1 {
		t.Errorf("Service %+v, problems %v", web, got.Problems)
	}
}

func TestPodRangesOfNodesAreTold(t *testing.T) {
	text := docs("apiVersion: v1\nkind: Node\nmetadata: {name: node-a}\nspec: {podCIDR: 10.244.1.0/24}\n",
		"apiVersion: v1\nkind: Node\nmetadata: {name: node-b}\nspec: {podCIDRs: [10.244.2.0/24]}\n")
	a, b := []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}, []netip.Prefix{netip.MustParsePrefix("10.244.2.0/24")}
	for dsr, want := range map[bool]map[string][]netip.Prefix{false: {"node-a": a}, true: {"node-a": a, "node-b": b}} {
		f := newFolderWith(convert.Options{DSR: dsr})
		f.state.set(&file{name: "a.yaml", path: "dir/a.yaml"}, f.dec.read([]byte(text), content{}))
		u, _ := f.state.next()
		if diff := cmp.Diff(want, u.PodRanges, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
			t.Errorf("of all Nodes: %t (-want +got):\n%s", dsr, diff)
		}
	}
}

func TestAddressesOfAllNodesAreToldWhereProbesAreAllowed(t *testing.T) {
	other := "apiVersion: v1\nkind: Node\nmetadata: {name: node-b}\nstatus: {addresses: [{type: InternalIP, address: %s}, {type: Hostname, address: b}]}\n"
	b, at := "node-b", func(f *folder, text string) map[string][]netip.Addr {
		f.state.set(&file{name: "a.yaml", path: "dir/a.yaml"}, f.dec.read([]byte(text), content{}))
		u, _ := f.state.next()
		return u.NodeAddresses
	}
	if got := at(newFolder(), docs(nodeYAML, fmt.Sprintf(other, "192.0.2.2"))); got != nil {
		t.Errorf("without probes: %v", got)
	}
	f := newFolderWith(convert.Options{Probes: true})
	if got := at(f, docs(nodeYAML, fmt.Sprintf(other, "192.0.2.2")))[b]; !slices.Equal(got, []netip.Addr{netip.MustParseAddr("192.0.2.2")}) {
		t.Errorf("got %v", got)
	}
	f.state.remove(f.state.files["a.yaml"])
	u, ok := f.state.next()
	if got, told := u.NodeAddresses[b]; !ok || !told || got != nil {
		t.Errorf("gone: %v, told: %t", got, told)
	}
}
