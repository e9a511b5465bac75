package load

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/traffic/result"
	"github.com/headgate/headgate/pkg/traffic/wire"
)

func TestAnHTTPAnswerIsReadHoweverItIsCut(t *testing.T) {
	for name, tc := range map[string]struct {
		text, backend string
		last          bool
	}{
		"with a length":       {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Pod: a\r\n\r\nhello", "a", false},
		"without a body":      {"HTTP/1.1 204 No Content\r\nx-pod:  b \r\n\r\n", "b", false},
		"an empty body":       {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "", false},
		"in chunks":           {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\na;x=y\r\n0123456789\r\n0\r\n\r\n", "", false},
		"chunks and trailers": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nT: v\r\n\r\n", "", false},
		"after an interim":    {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", "", false},
		"the last":            {"HTTP/1.1 302 Found\r\nConnection: Close\r\nContent-Length: 1\r\n\r\nx", "", true},
		"an old one":          {"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, step := range []int{1, 2, 3, 7, len(tc.text)} {
				r := &httpReader{header: "X-Pod"}
				for range 2 { // a reader is used again
					r.begin(0)
					for at := 0; at < len(tc.text); at += step {
						end := min(at+step, len(tc.text))
						whole, err := r.take([]byte(tc.text[at:end]))
						if err != nil || whole != (end == len(tc.text)) {
							t.Fatalf("in pieces of %d, after %d of %d bytes: whole %t, %v", step, end, len(tc.text), whole, err)
						}
					}
					if string(r.backend()) != tc.backend || r.last() != tc.last {
						t.Errorf("backend %q, last %t; want %q, %t", r.backend(), r.last(), tc.backend, tc.last)
					}
				}
			}
		})
	}
}

func TestAnHTTPAnswerThatIsNoneIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n": "HTTP status 503",
		"SSH-2.0-x\r\n\r\n":                                          "no HTTP",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n":              "Content-Length",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxy":             "more than its Content-Length",
		"HTTP/1.1 200 OK\r\n\r\nx":                                   "neither Content-Length nor chunks",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n": "chunk of size",
		strings.Repeat("a", maxHead):                                 "a head of more than",
	} {
		_, err := (&httpReader{}).take([]byte(text))
		if !errors.Is(err, errAnswer) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q gives %v, want %q in it", text, err, want)
		}
	}
}

func FuzzHTTPAnswer(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"), 3)
	f.Add([]byte("HTTP/1.1 100 Continue\r\n\r\n"), 50)
	f.Fuzz(func(t *testing.T, text []byte, cut int) {
		whole, err := (&httpReader{}).take(text)
		if cut <= 0 || cut >= len(text) {
			return
		}
		r := &httpReader{}
		first, errFirst := r.take(text[:cut])
		if first || errFirst != nil {
			return // what comes behind an answer is another's
		}
		if again, errAgain := r.take(text[cut:]); again != whole || (errAgain == nil) != (err == nil) {
			t.Errorf("%q at once: %t, %v; cut at %d: %t, %v", text, whole, err, cut, again, errAgain)
		}
	})
}

func TestAMessageIsReadHoweverItIsCut(t *testing.T) {
	message := make([]byte, 300)
	wire.PutAnswer(message, 9, 0, "server-1")
	for step := 1; step <= len(message); step++ {
		r := new(messageReader)
		r.begin(9)
		for at := 0; at < len(message); at += step {
			end := min(at+step, len(message))
			if whole, err := r.take(message[at:end]); err != nil || whole != (end == len(message)) {
				t.Fatalf("in pieces of %d, after %d bytes: whole %t, %v", step, end, whole, err)
			}
		}
		if string(r.backend()) != "server-1" {
			t.Fatalf("in pieces of %d: backend %q", step, r.backend())
		}
	}
	wrong := new(messageReader)
	wrong.begin(8)
	if _, err := wrong.take(message); !errors.Is(err, errAnswer) {
		t.Errorf("an answer to another request gives %v", err)
	}
	late := new(datagramReader)
	late.begin(8)
	if whole, err := late.take(message); whole || err != nil {
		t.Errorf("a datagram to an earlier request: whole %t, %v", whole, err)
	}
}

func TestSourcesGoRoundAllAddresses(t *testing.T) {
	spec := &Spec{Senders: 1, Sources: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/30"), netip.MustParsePrefix("192.0.2.7/32"), netip.MustParsePrefix("fd00::/127")}}
	s := newSources(spec, 0)
	var got []string
	for range 5 {
		got = append(got, s.addr(unix.AF_INET).String())
	}
	if want := "10.0.0.1 192.0.2.7 10.0.0.2 192.0.2.7 10.0.0.1"; strings.Join(got, " ") != want {
		t.Errorf("sources are %v, want %s", got, want)
	}
	s = newSources(spec, 0)
	if a, b, c := s.addr(unix.AF_INET6), s.addr(unix.AF_INET6), s.addr(unix.AF_INET6); a.String() != "fd00::" || b.String() != "fd00::1" || c != a {
		t.Errorf("IPv6 sources are %s, %s, %s", a, b, c)
	}
	if got := plus(netip.MustParseAddr("10.0.0.255"), 257).String(); got != "10.0.2.0" {
		t.Errorf("257 after 10.0.0.255 is %s", got)
	}
	s = newSources(&Spec{Senders: 2, FirstPort: 10, LastPort: 13}, 1)
	for _, want := range []uint16{12, 13, 10, 11, 12} {
		if port := s.nextPort(); port != want {
			t.Errorf("port %d, want %d", port, want)
		}
	}
}

func TestErrorsHaveTheirKind(t *testing.T) {
	for cause, want := range map[error]result.ErrorKind{
		unix.ECONNREFUSED: result.Refused, unix.ECONNRESET: result.Reset, unix.EPIPE: result.Reset, unix.ETIMEDOUT: result.Timeout,
		errTimeout: result.Timeout, errClosed: result.Closed, unix.EHOSTUNREACH: result.Unreachable, unix.ENETUNREACH: result.Unreachable,
		unix.EADDRNOTAVAIL: result.NoPorts, unix.EMFILE: result.NoResources, wire.ErrNotOurs: result.BadAnswer, unix.EINVAL: result.Other,
	} {
		if got := kindOf(errors.Join(errors.New("connect"), cause)); got != want {
			t.Errorf("%v is of kind %s, want %s", cause, got, want)
		}
	}
}
