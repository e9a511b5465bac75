package agent

import (
	"os"
	"strings"
	"testing"
)

func TestFewFreeDescriptorsAreAProblem(t *testing.T) {
	for _, c := range []struct {
		now  descriptors
		want string
	}{
		{descriptors{0, 1000}, ""},
		{descriptors{900, 1000}, ""},
		{descriptors{901, 1000}, `Node a: file descriptors of the agent "1000": less than 10 % of them are free`},
		{descriptors{1000, 1000}, `Node a: file descriptors of the agent "1000": less than 10 % of them are free`},
		{descriptors{2000, 1000}, `Node a: file descriptors of the agent "1000": less than 10 % of them are free`}, // the limit was lowered
		{descriptors{20, 1 << 63}, ""},
	} {
		got := ""
		for _, p := range c.now.problems("a") {
			got += p.Error()
		}
		if !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%+v: problem %q, want %q", c.now, got, c.want)
		}
	}
}

func TestDescriptorsOfThisProcessAreCounted(t *testing.T) {
	before, err := readDescriptors()
	if err != nil || before.open == 0 || before.limit < before.open {
		t.Fatalf("%+v, %v", before, err)
	}
	const more = 100 // others may close some
	for range more {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
	if now, err := readDescriptors(); err != nil || now.open < before.open+more/2 {
		t.Errorf("%d more: %+v, %v, before %+v", more, now, err, before)
	}
}
