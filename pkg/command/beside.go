package command

import (
	"os"
	"os/exec"
	"path/filepath"
)

// Beside returns the path of another program of this product: in the folder of
// this program, or else in PATH.
func Beside(program string) (string, error) {
	if self, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), program)); err == nil {
			return path, nil
		}
	}
	return exec.LookPath(program)
}
