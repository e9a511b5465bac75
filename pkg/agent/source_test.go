package agent

import (
	"context"
	"net/netip"
	"slices"
	"testing"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/lb"
)

func TestFilesHaveTheServiceCIDRsOfTheFlagAlone(t *testing.T) {
	some := []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
	for _, flag := range [][]netip.Prefix{nil, some} {
		s, _, err := newSource(Config{Manifests: t.TempDir(), NodeName: "node-a", ServiceCIDRs: flag}, zap.NewNop(), nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var got []netip.Prefix
		if err := s.Run(ctx, func(u lb.Update) { got = u.ServiceCIDRs; cancel() }); err != nil && ctx.Err() == nil {
			t.Fatal(err)
		}
		if got == nil || !slices.Equal(got, flag) {
			t.Errorf("with --service-cidrs %v the source says %#v, want just these, and not nil, which leaves what was there", flag, got)
		}
	}
}
