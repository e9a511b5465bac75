package manifest

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
			`dir/a.yaml:1: Service default/web: spec.externalIPs "203.0.113.1": is not used: external IPs are switched off on this node; remove it, or ask the operator to allow it`,
			`dir/a.yaml:1: Service default/web: spec.externalIPs "198.51.100.1": is not used: external IPs are switched off on this node; remove it, or ask the operator to allow it`}},
		{"some", convert.ExternalIPs{Allowed: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}}, []string{"203.0.113.1"}, []string{
			`dir/a.yaml:1: Service default/web: spec.externalIPs "198.51.100.1": is not used: it is outside the prefixes that external IPs may have; take an address within them, or ask the operator to allow it`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFolder()
			f.dec.opts.ExternalIPs = tc.policy
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
			f.wantHold(t)
		})
	}
}

func TestASourceFollowsWhatItIsTold(t *testing.T) {
	opts := convert.Options{ExternalIPs: convert.ExternalIPs{Off: true}}
	if got := New("dir", "node-a").Convert(opts).dec.opts; !got.ExternalIPs.Off {
		t.Errorf("options %+v, want %+v", got, opts)
	}
}
