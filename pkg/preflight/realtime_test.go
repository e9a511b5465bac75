package preflight

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"
)

func TestARealTimeKernelNeedsTheLock(t *testing.T) {
	const ordinary, old, now = "Linux version 6.18.2 (someone) #1 SMP PREEMPT_DYNAMIC", "Linux version 6.12.9-rt (someone) #1 SMP PREEMPT_RT", "Linux version 6.18.2-rt (someone) #1 SMP PREEMPT_RT"
	const with, without = "CONFIG_PREEMPT_RT=y\nCONFIG_PREEMPT_RT_NEEDS_BH_LOCK=y\n", "CONFIG_PREEMPT_RT=y\n# CONFIG_PREEMPT_RT_NEEDS_BH_LOCK is not set\n"
	inOrder := "ok realtime: programs of a CPU run one after the other"
	for _, tc := range []struct{ version, packed, boot, want string }{
		{ordinary, without, "", inOrder},
		{old, without, "", inOrder},
		{now, with, without, inOrder + ", by CONFIG_PREEMPT_RT_NEEDS_BH_LOCK"},
		{now, "", with, inOrder + ", by CONFIG_PREEMPT_RT_NEEDS_BH_LOCK"},
		{now, without, with, "failure realtime-unlocked: Linux 6.18.2-rt with PREEMPT_RT, without CONFIG_PREEMPT_RT_NEEDS_BH_LOCK"},
		{now, "", without, "failure realtime-unlocked: Linux 6.18.2-rt with PREEMPT_RT, without CONFIG_PREEMPT_RT_NEEDS_BH_LOCK"},
	} {
		r := &Report{}
		r.realtime(kernelFiles(t, tc.version, tc.packed, tc.boot))
		wantFound(t, r, tc.want)
	}
	for _, version := range []string{"", now} {
		r := &Report{}
		r.realtime(kernelFiles(t, version, "", ""))
		if r.Warnings != 1 || r.Findings[0].Name != "not-known" {
			t.Errorf("without files of the kernel %q: %+v", version, r.Findings)
		}
	}
}

// kernelFiles returns a root with those files of a kernel that are not empty.
func kernelFiles(t *testing.T, version, packed, boot string) string {
	t.Helper()
	root := t.TempDir()
	if packed != "" {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write([]byte(packed))
		_ = z.Close()
		packed = b.String()
	}
	for name, text := range map[string]string{"proc/version": version, "proc/config.gz": packed, "boot/config-6.18.2-rt": boot} {
		if text == "" {
			continue
		}
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}
