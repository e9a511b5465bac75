// Package netdev knows the node's network devices and addresses.
package netdev

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
)

// settle is how long changes gather before they are told: interfaces come up
// with several addresses at once.
const settle = 5 * time.Millisecond

// Addresses returns the addresses of the node, in the network namespace of the
// calling thread, on which others can reach it: those of every device, without
// loopback and link-local ones.
func Addresses() (map[netip.Addr]bool, error) {
	list, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	out := map[netip.Addr]bool{}
	for _, a := range list {
		addr, ok := netip.AddrFromSlice(a.IP)
		if addr = addr.Unmap(); ok && isReachable(addr) {
			out[addr] = true
		}
	}
	return out, nil
}

func isReachable(a netip.Addr) bool {
	return !a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.IsUnspecified() && !a.IsMulticast()
}

// WatchAddresses calls tell with the addresses of the node, at once and after
// every change, until the context ends. The map is the caller's own.
func WatchAddresses(ctx context.Context, tell func(map[netip.Addr]bool)) error {
	for {
		err := watchOnce(ctx, tell)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// watchOnce watches until the subscription breaks, as it does when the kernel
// had more to say than fits: then everything is read anew.
func watchOnce(ctx context.Context, tell func(map[netip.Addr]bool)) error {
	updates, done := make(chan netlink.AddrUpdate, 64), make(chan struct{})
	defer close(done)
	if err := netlink.AddrSubscribeWithOptions(updates, done, netlink.AddrSubscribeOptions{
		ErrorCallback:     func(error) {}, // the channel closes, which says enough
		ReceiveBufferSize: 1 << 20,
	}); err != nil {
		return fmt.Errorf("subscribe to addresses: %w", err)
	}
	var last map[netip.Addr]bool
	for {
		now, err := Addresses()
		if err != nil {
			return err
		}
		if last == nil || !maps.Equal(last, now) {
			last = now
			tell(maps.Clone(now))
		}
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-updates:
			if !ok {
				return nil
			}
		}
		drain(ctx, updates)
	}
}

// drain takes what comes within a moment.
func drain(ctx context.Context, updates <-chan netlink.AddrUpdate) {
	end := time.NewTimer(settle)
	defer end.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-end.C:
			return
		case _, ok := <-updates:
			if !ok {
				return
			}
		}
	}
}
