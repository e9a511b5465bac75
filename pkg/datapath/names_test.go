package datapath

import (
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An agent may die at any store. Here it dies at those to a page that it may not write.
func TestANameThatIsHalfWrittenIsNone(t *testing.T) {
	page := os.Getpagesize()
	old, next := "namespace/"+strings.Repeat("a", 150)+"/TCP", "namespace/"+strings.Repeat("b", 150)+"/TCP"
	for _, name := range []string{next, ""} {
		for letters := 8; letters < 200; letters += 8 { // before the page
			mem, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
			if err != nil {
				t.Fatal(err)
			}
			s := (*headgateService)(unsafe.Pointer(&mem[page-letters]))
			writeName(s, old)
			if err := unix.Mprotect(mem[page:], unix.PROT_READ); err != nil {
				t.Fatal(err)
			}
			if !faults(func() { writeName(s, name) }) {
				t.Fatal("all could be written")
			}
			if got := readName(s, new(uint64)); got != "" {
				t.Errorf("%d letters of %q are written: the name is %q", letters, name, got)
			}
			if err := unix.Munmap(mem); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// faults says whether a function writes where it may not.
func faults(do func()) (faulted bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { faulted = recover() != nil }()
	do()
	return false
}
