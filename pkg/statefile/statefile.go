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
	return write(path, body, os.Rename)
}

// Make makes a file in one step, unless there is one (fs.ErrExist). It returns once the file outlives a
// power failure.
func Make(path string, body []byte) error {
	if err := write(path, body, linkDurably); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// write writes a file beside path, and puts it there.
func write(path string, body []byte, put func(from, to string) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	next, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = next.Write(body)
	if err = errors.Join(err, next.Close()); err == nil {
		err = put(next.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next.Name()))
	}
	return nil
}

// linkDurably gives a file another name, and takes the old one off.
func linkDurably(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(from, to); err != nil {
		return err
	}
	return os.Remove(from)
}
