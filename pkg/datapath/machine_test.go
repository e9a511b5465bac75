package datapath

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

func TestAKernelThatIsTooOldIsSaidToBe(t *testing.T) {
	verifier := fmt.Errorf("program connect4: %w", &ebpf.VerifierError{Cause: unix.EACCES, Log: []string{"unknown func 197"}})
	for _, tc := range []struct {
		release string
		err     error
		old     bool
	}{
		{"5.10.0-30-amd64", verifier, true},
		{"5.10.0-30-amd64", fmt.Errorf("map about: %w", ebpf.ErrNotSupported), true},
		{"5.10.0-30-amd64", fmt.Errorf("map about: %w", unix.EINVAL), true},
		{"5.10.0-30-amd64", unix.ENOMEM, false},
		{"4.19.0", verifier, true},
		{"6.0.19", verifier, true},
		{"6.1.0", verifier, false},
		{"6.18.44", verifier, false},
		{"10.0.1", verifier, false},
		{"unreadable", verifier, false},
	} {
		t.Run(tc.release+" with "+tc.err.Error(), func(t *testing.T) {
			got := explainLoadOn(tc.release, tc.err)
			want := "load the BPF object: " + tc.err.Error()
			if tc.old {
				want = "kernel " + tc.release + " is too old: 6.1 or newer is needed"
			}
			if got.Error() != want {
				t.Errorf("got %q, want %q", got, want)
			}
			if !tc.old && !errors.Is(got, tc.err) {
				t.Errorf("%v does not wrap %v", got, tc.err)
			}
		})
	}
}

func TestTheInnermostMountSaysWhetherItIsShared(t *testing.T) {
	at := func(point, optional string) *mountinfo.Info {
		return &mountinfo.Info{Mountpoint: point, Optional: optional}
	}
	for _, tc := range []struct {
		name   string
		mounts []*mountinfo.Info
		want   bool
	}{
		{"no mount at all", nil, false},
		{"a shared one", []*mountinfo.Info{at("/", "shared:1")}, true},
		{"a private one in a shared one", []*mountinfo.Info{at("/", "shared:1"), at("/sys", "")}, false},
		{"a shared one in a slave", []*mountinfo.Info{at("/sys", "shared:2 master:1"), at("/", "master:1")}, true},
		{"the last of equal ones", []*mountinfo.Info{at("/sys", "shared:2"), at("/sys", "")}, false},
	} {
		if got := isShared(tc.mounts); got != tc.want {
			t.Errorf("%s: got %v", tc.name, got)
		}
	}
}
