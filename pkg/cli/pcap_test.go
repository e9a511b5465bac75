package cli

import (
	"strings"
	"testing"
)

// Anybody may name a process, and whoever reads the comment may do so on a terminal.
func TestACommentIsOneLineOfText(t *testing.T) {
	one := traced{Where: "connect", PID: 7, Process: "a\x1b[2J\nb", Asked: "10.96.0.10:80/TCP", Service: "default/web/TCP", Got: "10.244.1.1:8080/TCP"}
	const want = "connect() of pid 7 a [2J b, to 10.96.0.10:80/TCP default/web/TCP: 10.244.1.1:8080/TCP"
	if got := one.comment(); got != want || strings.ContainsAny(got, "\x1b\n") {
		t.Errorf("got %q, want %q", got, want)
	}
}
