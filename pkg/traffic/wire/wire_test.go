package wire

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestARequestIsReadAsItWasWritten(t *testing.T) {
	want := Request{Length: 64, Answer: 1024, Flags: OneWay | Report, Sequence: 1<<63 + 5}
	b := make([]byte, 64)
	want.Put(b)
	got, err := ParseRequest(b)
	if err != nil || got != want {
		t.Errorf("request is %+v, %v, want %+v", got, err, want)
	}
}

func TestARequestThatIsNoneIsRefused(t *testing.T) {
	for name, r := range map[string]Request{
		"shorter than its header": {Length: RequestHeader - 1},
		"too long":                {Length: MaxMessage + 1},
		"for too long an answer":  {Length: 64, Answer: MaxMessage + 1},
	} {
		b := make([]byte, RequestHeader)
		r.Put(b)
		if got, err := ParseRequest(b); err == nil {
			t.Errorf("a request %s is taken: %+v", name, got)
		}
	}
	if got, err := ParseRequest([]byte("GET / HTTP/1.1\r\nHost: example\r\n")); err == nil {
		t.Errorf("HTTP is taken as a request: %+v", got)
	}
}

func TestAnAnswerIsReadWhenItsNameIsThere(t *testing.T) {
	b := make([]byte, AnswerLength(10, "server-1"))
	PutAnswer(b, 7, 9, "server-1")
	for n := range len(b) {
		if got, err := ParseAnswer(b[:n]); err != nil || got.Length != 0 {
			t.Fatalf("of %d bytes of %d: %+v, %v", n, len(b), got, err)
		}
	}
	got, err := ParseAnswer(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Answer{Length: 33, Sequence: 7, Count: 9, Name: []byte("server-1")}, got); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

func TestAnAnswerOfSomebodyElseIsRefused(t *testing.T) {
	short := make([]byte, 40)
	PutAnswer(short, 1, 1, "name")
	short[7] = 3 // a length that does not hold the name
	for _, b := range [][]byte{[]byte("HTTP/1.1 400 Bad Request"), short} {
		if got, err := ParseAnswer(b); !errors.Is(err, ErrNotOurs) {
			t.Errorf("%q is %+v, %v", b, got, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	b := make([]byte, 64)
	PutAnswer(b, 1, 2, "x")
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := ParseAnswer(b); err == nil && a.Length != 0 && int(a.Length) < AnswerHeader+len(a.Name) {
			t.Errorf("answer of %d bytes with a name of %d", a.Length, len(a.Name))
		}
		if len(b) >= RequestHeader {
			_, _ = ParseRequest(b)
		}
	})
}

func TestTheLastAnswerIsFoundBehindZeros(t *testing.T) {
	answer := make([]byte, AnswerLength(0, "HGa1"))
	PutAnswer(answer, 3, 99, "HGa1")
	for zeros := range 100 {
		got, err := LastAnswer(append(make([]byte, zeros), answer...))
		if err != nil || got.Count != 99 || string(got.Name) != "HGa1" {
			t.Errorf("behind %d zeros: %+v, %v", zeros, got, err)
		}
	}
	for _, data := range [][]byte{nil, make([]byte, 200), answer[:len(answer)-1]} {
		if got, err := LastAnswer(data); err == nil {
			t.Errorf("%d bytes without answer end with %+v", len(data), got)
		}
	}
}
