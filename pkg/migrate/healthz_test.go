package migrate

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A kube-proxy that starts answers 200 before it has written a rule.
func TestAKubeProxyServesOnceItNamesEveryFamily(t *testing.T) {
	const one = `"IPv4":{"lastUpdated":"2026-11-23T00:00:00Z","healthy":true}`
	both := map[string]bool{"IPv4": true, "IPv6": true}
	for _, tc := range []struct {
		name  string
		code  int
		body  string
		want  string // what is missing
		named bool
	}{
		{"it starts", 200, `{"lastUpdated":"2026-11-23T00:00:00Z","status":{}}`, "has no rules of IPv", true},
		{"one family", 200, `{"status":{` + one + `}}`, "has no rules of IPv6 yet", true},
		{"both", 200, `{"status":{` + one + `,"IPv6":{"healthy":true}}}`, "", true},
		{"an older one", 200, `{"lastUpdated":"2026-11-23T00:00:00Z","nodeEligible":true}`, "", false},
		{"it is behind", 503, `{}`, "answers 503 Service Unavailable", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tc.code)
				_, _ = w.Write([]byte(tc.body))
			}))
			defer s.Close()
			address := strings.TrimPrefix(s.URL, "http://")
			got, named := askHealthz(t.Context(), address, both)
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) || named != tc.named {
				t.Errorf("missing is %q, families are named: %t; want %q, %t", got, named, tc.want, tc.named)
			}
		})
	}
	if got, named := askHealthz(t.Context(), "", both); got != "" || named {
		t.Errorf("of one that answers nowhere it says %q, families are named: %t", got, named)
	}
	if got, _ := askHealthz(t.Context(), "127.0.0.1:1", both); !strings.Contains(got, "nobody answers at 127.0.0.1:1") {
		t.Errorf("of nobody it says %q", got)
	}
}

func TestAListenerIsAskedOnItsOwnMachine(t *testing.T) {
	for address, want := range map[string]string{
		"0.0.0.0:10256": "127.0.0.1:10256", ":10256": "127.0.0.1:10256", "[::]:10256": "[::1]:10256", "192.0.2.1:10256": "192.0.2.1:10256",
	} {
		if got := reachable(address); got != want {
			t.Errorf("%s is asked at %s, want %s", address, got, want)
		}
	}
}
