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
	return replace(path, body, func(*os.File) error { return nil })
}

// ReplaceDurably does so, and returns once the file outlives a power failure.
func ReplaceDurably(path string, body []byte) error {
	if err := replace(path, body, (*os.File).Sync); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func replace(path string, body []byte, settle func(*os.File) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	next, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = next.Write(body)
	if err = errors.Join(err, settle(next), next.Close()); err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next.Name()))
	}
	return nil
}
