package datapath

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
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

func TestAMountPointIsReadAsItIsNamed(t *testing.T) {
	if got, want := unescapeMount(`/sys/fs/c\040group\134x`), `/sys/fs/c group\x`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
