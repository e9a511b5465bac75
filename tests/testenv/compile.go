package testenv

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// Compile compiles a BPF program, which finds the headers of its own folder and
// those named, and returns the path of the object. Without the compiler that the
// project is built with the test is skipped.
func Compile(tb testing.TB, source string, headers ...string) string {
	tb.Helper()
	object := filepath.Join(tb.TempDir(), "test.o")
	args := []string{"-O2", "-g", "-mcpu=v3", "-c", source, "-o", object}
	for _, dir := range headers {
		args = append(args, "-I", dir)
	}
	clang(tb, args...)
	return object
}

// CompileAlone compiles a header with nothing before it, or skips the test likewise.
func CompileAlone(tb testing.TB, header string) {
	tb.Helper()
	clang(tb, "-fsyntax-only", "-Wno-unused-function", "-include", header, "-x", "c", "/dev/null")
}

func clang(tb testing.TB, args ...string) {
	tb.Helper()
	program, err := exec.LookPath("clang-19")
	if err != nil {
		tb.Skip("needs clang-19, to compile C for BPF")
	}
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	args = append([]string{"-target", "bpfel", "-Wall", "-Werror", "-idirafter", "/usr/include/" + machine + "-linux-gnu"}, args...)
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		tb.Fatalf("clang-19 %v: %v\n%s", args, err, out)
	}
}
