// Package statefile writes what outlives a process, whole or not at all.
package statefile

import (
	"errors"
	"os"
	"path/filepath"
)

// Replace writes a file in one step: who reads it meets the old content or the
// new. Its directory is made if missing. Both are for the user alone.
func Replace(path string, body []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	next, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = next.Write(body)
	if err = errors.Join(err, next.Close()); err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next.Name()))
	}
	return nil
}
