package manifest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/headgate/headgate/pkg/lb"
)

// maxFileSize keeps a stray disk image from eating the memory of the node.
const maxFileSize = 64 << 20

// isManifest says whether a file of that name is read: YAML or JSON, neither
// hidden nor an editor's own.
func isManifest(name string) bool {
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") {
		return false
	}
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	default:
		return false
	}
}

// fingerprint changes whenever a file does, as far as stat can tell. The zero
// fingerprint is that of no file.
type fingerprint struct {
	device, inode uint64
	size          int64
	modified      int64 // ns since the epoch, and so is changed
	changed       int64
}

// sameFile says whether both are versions of one file, written in place.
func (p fingerprint) sameFile(o fingerprint) bool {
	return p.device == o.device && p.inode == o.inode
}

func fingerprintOf(info fs.FileInfo) fingerprint {
	p := fingerprint{size: info.Size(), modified: info.ModTime().UnixNano()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		p.device, p.inode, p.changed = st.Dev, st.Ino, st.Ctim.Nano()
	}
	return p
}

// list returns the fingerprints of the manifests in a directory by name. Links
// are followed, as a mounted ConfigMap is nothing else. A manifest that cannot
// be looked at has the zero fingerprint. What is no file is listed, too: reading it says so.
func list(dir string) (map[string]fingerprint, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	prints := make(map[string]fingerprint, len(entries))
	for _, e := range entries {
		if !isManifest(e.Name()) {
			continue
		}
		prints[e.Name()] = fingerprint{}
		if info, err := os.Stat(filepath.Join(dir, e.Name())); err == nil {
			prints[e.Name()] = fingerprintOf(info)
		}
	}
	return prints, nil
}

// exists says whether the name is in the directory, be it a link to nowhere.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// readFile returns the content of a file. An error is a Problem.
func readFile(path string) ([]byte, fingerprint, error) {
	// Without O_NONBLOCK, opening a named pipe would wait for its writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fingerprint{}, unreadable(path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fingerprint{}, unreadable(path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fingerprint{}, lb.Problem{File: path, Reason: "is not a regular file",
			Remedy: "put a file in its place or give it another ending"}
	}
	if info.Size() > maxFileSize {
		return nil, fingerprintOf(info), lb.Problem{File: path,
			Reason: fmt.Sprintf("is %d bytes long, over the limit of %d MiB", info.Size(), maxFileSize>>20),
			Remedy: "split it into several files"}
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize))
	if err != nil {
		return nil, fingerprint{}, unreadable(path, err)
	}
	return data, fingerprintOf(info), nil
}

// unreadable is the Problem of a file that cannot be read.
func unreadable(path string, err error) lb.Problem {
	return lb.Problem{File: path, Reason: "cannot be read: " + cause(err),
		Remedy: "make it readable for the agent, or remove it"}
}

// cause returns an error without the path, which stands elsewhere.
func cause(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}
