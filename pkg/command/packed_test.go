package command

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
)

// What was written is read, whether or not it fits into pages, and text that is alike is kept in little memory.
func TestPackedTextIsReadAsItWasWritten(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, size := range []int{0, 1, pageSize, pageSize + 1, 3 * pageSize, 40 * pageSize} {
		for _, alike := range []bool{true, false} {
			var want bytes.Buffer
			var p Packed
			for want.Len() < size {
				line := []byte(fmt.Sprintf("%d\tservice-%d\tready\n", want.Len(), want.Len()%7))
				if !alike {
					line = make([]byte, 1+r.IntN(2*pageSize))
					for i := range line {
						line[i] = byte(r.Uint32())
					}
				}
				line = line[:min(len(line), size-want.Len())]
				want.Write(line)
				if n, err := p.Write(line); n != len(line) || err != nil {
					t.Fatal(n, err)
				}
			}
			if most := 2*pageSize + size/3; alike && len(p.packed)*pageSize+len(p.page) > most {
				t.Errorf("%d bytes are kept in %d pages, want %d bytes at the most", size, len(p.packed), most)
			}
			from, err := p.Reader()
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(from)
			if err != nil || !bytes.Equal(got, want.Bytes()) {
				t.Fatalf("of %d bytes (alike: %t) %d are read, %v", size, alike, len(got), err)
			}
			if len(p.packed) > 0 {
				t.Errorf("%d pages are kept once all is read", len(p.packed))
			}
		}
	}
}

// A list of many pages is printed whole, with columns as wide as the widest cell of all.
func TestManyRowsAreWrittenAsTheyWere(t *testing.T) {
	var all kept
	var want strings.Builder
	for i := range 20_000 {
		all.add([]string{fmt.Sprint(i), "same", strings.Repeat("x", i%90)})
		want.WriteString(strings.TrimRight(fmt.Sprintf("%-7d%-6s%s", i, "same", strings.Repeat("x", i%90)), " ") + "\n")
	}
	var got strings.Builder
	if err := all.write(&got); err != nil || got.String() != want.String() {
		t.Errorf("%d bytes are written, want %d, %v", got.Len(), want.Len(), err)
	}
}
