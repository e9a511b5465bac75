package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/traffic/load"
)

// waitInterval is how often targets are looked for that are not there yet.
const waitInterval = 500 * time.Millisecond

// awaitLoad returns what the flags say, when all targets are there: within the
// time given for it.
func (f *loadFlags) awaitLoad(cmd *cobra.Command, wait time.Duration) (load.Spec, []load.Action, error) {
	ctx := cmd.Context()
	for limit := time.Now().Add(wait); ; {
		spec, actions, err := f.load(cmd)
		if err == nil && !spec.Unchecked {
			err = load.Check(spec)
		}
		var absent *load.AbsentError
		var unknown *net.DNSError
		if !errors.As(err, &absent) && !errors.As(err, &unknown) || time.Now().After(limit) {
			return spec, actions, err
		}
		select {
		case <-ctx.Done():
			return spec, nil, err
		case <-time.After(waitInterval):
		}
	}
}

// parseTargets returns addresses and ports. A name stands for all its addresses,
// as they are now.
func parseTargets(ctx context.Context, texts []string) ([]netip.AddrPort, error) {
	var targets []netip.AddrPort
	for _, text := range texts {
		t, err := netip.ParseAddrPort(text)
		if err == nil {
			targets = append(targets, t)
			continue
		}
		named, err := resolveTarget(ctx, text)
		if err != nil {
			return nil, err
		}
		targets = append(targets, named...)
	}
	return targets, nil
}

func resolveTarget(ctx context.Context, text string) ([]netip.AddrPort, error) {
	name, number, found := strings.Cut(text, ":")
	port, err := strconv.ParseUint(number, 10, 16)
	if _, notAName := netip.ParseAddr(name); !found || err != nil || name == "" || notAName == nil {
		return nil, fmt.Errorf("--target %s: not an address and a port; write one like 192.0.2.1:80 or [2001:db8::1]:80", lb.Quote(text))
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return nil, fmt.Errorf("--target %s: %w", lb.Quote(text), err)
	}
	var targets []netip.AddrPort
	for _, a := range addrs {
		targets = append(targets, netip.AddrPortFrom(a.Unmap(), uint16(port)))
	}
	slices.SortFunc(targets, netip.AddrPort.Compare)
	return slices.Compact(targets), nil
}
