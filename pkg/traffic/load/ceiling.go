package load

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/traffic/netio"
	"github.com/headgate/headgate/pkg/traffic/result"
	"github.com/headgate/headgate/pkg/traffic/serve"
)

// ceilingTime is how long a ceiling is measured.
const ceilingTime = 500 * time.Millisecond

// Ceiling measures what the generator can do at most of a kind of load: the
// same load in a closed loop, against a server in this process, over loopback.
// The server shares the CPUs, so against a server elsewhere the generator can
// do more: a ceiling marks results too early rather than too late.
func Ceiling(ctx context.Context, spec Spec) (result.Ceiling, error) {
	loopback := netip.IPv6Loopback()
	if spec.Targets[0].Addr().Unmap().Is4() {
		loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	port, err := freePort(loopback)
	if err != nil {
		return result.Ceiling{}, err
	}
	target := netip.AddrPortFrom(loopback, port)
	server, err := serve.Start([]serve.Endpoint{{Name: "ceiling", Addr: target}}, serve.Options{})
	if err != nil {
		return result.Ceiling{}, err
	}
	alone := spec
	alone.Targets, alone.Sources, alone.FirstPort, alone.LastPort = []netip.AddrPort{target}, nil, 0, 0
	alone.Rate, alone.Poisson, alone.Ceiling, alone.Unchecked, alone.Path = 0, false, false, true, fmt.Sprintf("/?bytes=%d", spec.Response)
	alone.WarmUp, alone.Duration, alone.Interval = ceilingTime/5, ceilingTime, 0
	run, err := Run(ctx, alone, nil)
	if err := errors.Join(err, server.Close()); err != nil {
		return result.Ceiling{}, err
	}
	return result.Ceiling{PerSecond: run.PerSecond(), How: "closed loop against a server of its own on loopback"}, nil
}

// freePort returns a port that nobody listens on, over TCP and UDP: the kernel
// gives ports in no order, so nobody else gets it soon.
func freePort(addr netip.Addr) (uint16, error) {
	for range 100 {
		tcp, err := netio.ListenTCP(netip.AddrPortFrom(addr, 0))
		if err != nil {
			return 0, err
		}
		name, err := unix.Getsockname(tcp)
		if err != nil {
			return 0, errors.Join(err, unix.Close(tcp))
		}
		port := netio.AddrPort(name).Port()
		udp, err := netio.ListenUDP(netip.AddrPortFrom(addr, port))
		_ = unix.Close(tcp)
		if err == nil {
			return port, unix.Close(udp)
		}
	}
	return 0, fmt.Errorf("find a port on %s that is free over TCP and UDP", addr)
}
