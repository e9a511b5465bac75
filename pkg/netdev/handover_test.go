package netdev_test

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/tests/testenv"
)

// tests/network has connections that go on.
func TestConnectionsAreHandedOverOnce(t *testing.T) {
	testenv.EnterNetns(t)
	at := netip.MustParseAddrPort
	all := []netdev.Connection{
		{Protocol: unix.IPPROTO_TCP, From: at("198.51.100.7:40000"), To: at("203.0.113.10:80"), Inside: at("198.51.100.7:40000"), Backend: at("10.244.1.10:8080"), TCP: netdev.TCPOpen},
		{Protocol: unix.IPPROTO_UDP, From: at("[2001:db8:c::7]:40000"), To: at("[2001:db8::1]:30080"), Inside: at("[2001:db8:c::7]:40001"), Backend: at("[fd00:244:2::10]:8080"), Outside: at("[2001:db8::1]:61000")},
	}
	if left, err := netdev.HandOver(all); !errors.Is(err, netdev.ErrNoTranslation) || !slices.Equal(left, []int{0, 1}) {
		t.Errorf("without anybody who translates %v are left, and %v", left, err)
	}
	do(t, "nft", "add table inet nat; add chain inet nat pre { type nat hook prerouting priority -100; }; add rule inet nat pre ct state new")
	if left, err := netdev.HandOver(all); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
	tracked := func() (got []string) {
		t.Helper()
		tracked, err := netdev.TranslatedConnections()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range tracked {
			got = append(got, c.From.String()+" to "+c.To.String()+" by "+c.Backend.String())
		}
		return got
	}
	want := []string{"198.51.100.7:40000 to 203.0.113.10:80 by 10.244.1.10:8080", "[2001:db8:c::7]:40000 to [2001:db8::1]:30080 by [fd00:244:2::10]:8080"}
	if got := tracked(); !slices.Equal(got, want) {
		t.Errorf("tracked are %q, want %q", got, want)
	}
	if left, err := netdev.HandOver(all); err != nil || len(left) > 0 {
		t.Errorf("of what the kernel translates already is left %v, %v", left, err)
	}
	all[0].Backend = at("10.244.1.20:8080")
	if left, err := netdev.HandOver(all); err != nil || !slices.Equal(left, []int{0}) {
		t.Errorf("what the kernel sends elsewhere is not left: %v, %v", left, err)
	}
	all[0].TCP = netdev.TCPClosing
	if left, err := netdev.HandOver(all); err != nil || len(left) > 0 {
		t.Errorf("what is closed, and whose port the kernel has sent elsewhere, is left: %v, %v", left, err)
	}
	all[0].TCP = netdev.TCPOpen
	if err := netdev.ForgetOthers(all); err != nil || !slices.Equal(tracked(), want[1:]) {
		t.Errorf("what is of another time is not forgotten alone: %q, %v", tracked(), err)
	}
	if left, err := netdev.HandOver(all); err != nil || len(left) > 0 {
		t.Errorf("once it is forgotten, left are %v, %v", left, err)
	}
}

func TestOnlyASYNBeginsATrackedConnectionForAWhile(t *testing.T) {
	testenv.EnterNetns(t)
	const loose = "/proc/sys/net/netfilter/nf_conntrack_tcp_loose"
	is := func(when, want string) {
		t.Helper()
		if got, err := os.ReadFile(loose); err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%s %s is %q, %v, want %s", when, loose, got, err, want)
		}
	}
	dir := t.TempDir()
	over := func(when, want string) {
		t.Helper()
		if err := netdev.TrackAsBefore(dir); err != nil {
			t.Error(err)
		}
		is(when, want)
	}
	for _, before := range []string{"1", "0"} {
		if err := os.WriteFile(loose, []byte(before), 0); err != nil {
			t.Skipf("connection tracking is not there: %v", err)
		}
		netdev.TrackFromSYN(dir)
		is("meanwhile", "0")
		over("afterwards", before)
		netdev.TrackFromSYN(dir) // is killed
		netdev.TrackFromSYN(dir)
		over("after a second one", before)
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("a note is left: %v, %v", left, err)
		}
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(loose, []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	netdev.TrackFromSYN(dir)
	is("where no note can be made", "1")
}
