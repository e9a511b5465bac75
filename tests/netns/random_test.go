package netns_test

import (
	"math"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// A connected socket has the source address that the kernel chose for its
// backend, which for an address of this machine is the address itself.
func TestRandomSpreadsEvenly(t *testing.T) {
	const connects, backends = 30_000, 7
	n := mustNode(t)
	var all []*backend
	for i := range backends {
		all = append(all, udpBackend(t, inet, i+1))
	}
	vip := udpVIP(inet, 1)
	n.set("dns", frontend(vip, all...))
	got := map[netip.Addr]int{}
	for range connects {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		s := &socket{t, fd, inet}
		s.mustConnect(at(vip))
		got[s.local().Addr()]++
		s.close()
	}
	chi2, expected := 0.0, float64(connects)/backends
	for _, b := range all {
		d := float64(got[b.at.Addr]) - expected
		chi2 += d * d / expected
	}
	if p := chanceOfSix(chi2); p < 1e-6 || len(got) != backends {
		t.Errorf("%v: chi-square %.1f, which chance gives once in %.0f runs", got, chi2, 1/p)
	}
}

// chanceOfSix is how likely chi-square with six degrees of freedom is at least
// x: exp(-x/2) times the first three terms of its series.
func chanceOfSix(x float64) float64 {
	h := x / 2
	return math.Exp(-h) * (1 + h + h*h/2)
}
