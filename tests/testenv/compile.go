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
	clang, err := exec.LookPath("clang-19")
	if err != nil {
		tb.Skip("needs clang-19, to compile a BPF program of the test")
	}
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	object := filepath.Join(tb.TempDir(), "test.o")
	args := []string{"-target", "bpfel", "-O2", "-g", "-Wall", "-Werror", "-mcpu=v3", "-idirafter", "/usr/include/" + machine + "-linux-gnu"}
	for _, dir := range headers {
		args = append(args, "-I", dir)
	}
	if out, err := exec.Command(clang, append(args, "-c", source, "-o", object)...).CombinedOutput(); err != nil {
		tb.Fatalf("compile %s: %v\n%s", source, err, out)
	}
	return object
}
