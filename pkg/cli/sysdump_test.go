package cli

import (
	"archive/tar"
	"bytes"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"testing"
)

// A file of a sysdump is the text without its secrets, however it comes in parts.
func TestADumpedFileIsTheTextWithoutSecrets(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		var text strings.Builder
		for text.Len() < 3*dumpedLines {
			line := []string{
				`"backend": "10.244.1.1:8080/TCP",`, `"server": "https://me:tell-nobody@192.0.2.1:6443"`, `"what": "Bearer tell-nobody"`, "", `"token=tell-nobody"`,
				`"-----BEGIN RSA PRIVATE KEY-----\ntell-nobody\n-----END RSA PRIVATE KEY-----"`, strings.Repeat("x", r.IntN(2000)),
			}[r.IntN(7)]
			text.WriteString(line + "\n")
		}
		f := newDumpedFile("backend.json")
		for rest := []byte(text.String()); len(rest) > 0; {
			n := min(1+r.IntN(90_000), len(rest))
			if _, err := f.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		var packed bytes.Buffer
		to := tar.NewWriter(&packed)
		if err := f.pack(to); err != nil {
			t.Fatal(err)
		}
		if err := to.Close(); err != nil {
			t.Fatal(err)
		}
		from := tar.NewReader(&packed)
		header, err := from.Next()
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(from)
		if err != nil {
			t.Fatal(err)
		}
		want := strings.NewReplacer("me:tell-nobody@", "REDACTED@", "Bearer tell-nobody", "Bearer REDACTED", "token=tell-nobody", "token=REDACTED",
			`KEY-----\ntell-nobody\n-----END RSA PRIVATE KEY-----`, "KEY-----REDACTED").Replace(text.String())
		if header.Name != "headgate-sysdump/backend.json" || string(got) != want {
			t.Fatalf("%s has %d bytes, want %d; a secret: %t", header.Name, len(got), len(want), bytes.Contains(got, []byte("tell-nobody")))
		}
	}
}

// The lists that a sysdump runs leave no more garbage than it asks for.
func TestGarbageIsLimitedByWhoWantsLeast(t *testing.T) {
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	for _, c := range []struct{ asked, want int }{{garbage, garbage}, {garbage / 2, garbage / 2}, {garbage, garbage / 2}} {
		limitGarbage(c.asked)
		if got := debug.SetGCPercent(c.want); got != c.want {
			t.Errorf("%d%% after %d%% was asked for, want %d%%", got, c.asked, c.want)
		}
	}
}
