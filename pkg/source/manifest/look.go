package manifest

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/tick"
)

// note takes in what the kernel says has happened.
func (s *Source) note(ev fsnotify.Event, now time.Time) {
	dir, name := filepath.Split(filepath.Clean(ev.Name))
	switch {
	case filepath.Clean(ev.Name) == s.watch.path:
		s.lookBy(now.Add(s.queue.debounce)) // the directory itself came or went
	case filepath.Clean(dir) != s.watch.path:
	case isManifest(name):
		if ev.Has(fsnotify.Remove | fsnotify.Rename) {
			s.removed = now
		}
		s.queue.touch(name, now)
	case strings.HasPrefix(name, ".."):
		// A mounted ConfigMap changes by one link, ..data, that all files
		// go through.
		s.lookBy(now.Add(s.queue.debounce))
	}
}

func (s *Source) lookBy(t time.Time) {
	if t.Before(s.lookAt) {
		s.lookAt = t
	}
}

// look finds the files that have changed without reading any.
func (s *Source) look(now time.Time) {
	s.watch.renew() // before reading, or what changes in between is missed
	defer func() { s.lookAt = time.Now().Add(max(tick.Next(s.queue.poll), s.watch.share()*time.Since(now))) }()
	s.state.directory = s.watch.problems(s.dir)
	prints, err := list(s.dir)
	if s.state.lost = err != nil; s.state.lost {
		s.state.directory = append(s.state.directory, lb.Problem{Scope: lb.ScopeNode, File: s.dir,
			Reason: "cannot be read: " + cause(err) + "; everything stays as it was",
			Remedy: "bring the directory back"})
		return
	}
	for name, print := range prints {
		if f := s.state.files[name]; f == nil || f.print != print || f.vanishing {
			s.readLater(name, now)
		}
	}
	for name := range s.state.files {
		if _, ok := prints[name]; !ok {
			s.removed = now
			s.readLater(name, now)
		}
	}
}

// readLater has a file read, unless that is on its way.
func (s *Source) readLater(name string, now time.Time) {
	if s.queue.waits[name] == nil {
		s.queue.touch(name, now)
	}
}

// process reads the files that are due.
func (s *Source) process(now time.Time) {
	names := s.queue.ready(now)
	slices.Sort(names)
	for _, name := range names {
		f := s.state.files[name]
		if f == nil {
			f = &file{name: name, path: filepath.Join(s.dir, name)}
		}
		if s.readInto(f, now) {
			s.queue.done(name)
		}
	}
	s.queue.rest()
}

// readInto reads a file. It returns false where the file is better looked at
// again in a moment.
func (s *Source) readInto(f *file, now time.Time) bool {
	data, print, err := readFile(f.path)
	if err != nil && !exists(f.path) {
		return s.gone(f, now)
	}
	if err != nil {
		if s.queue.putOff(f.name, time.Time{}, now) {
			return false
		}
		f.print, f.vanishing = print, false
		s.state.fail(f, err)
		return true
	}
	c := s.dec.read(data, f.content)
	if unfinished(f, print, data, c) && s.queue.putOff(f.name, time.Time{}, now) {
		return false
	}
	f.print, f.vanishing = print, false
	s.state.set(f, c)
	return true
}

// gone takes a file out of force, once that is certain: an editor may be about
// to write its successor, and of a directory that vanishes everything stays.
func (s *Source) gone(f *file, now time.Time) bool {
	if s.state.files[f.name] == nil {
		return true
	}
	s.state.vanish(f, true)
	if s.queue.putOff(f.name, s.removed, now) {
		return false
	}
	if _, err := os.Stat(s.dir); err != nil {
		s.lookAt = now
		return true
	}
	s.state.remove(f)
	return true
}

// unfinished says whether a file looks like the midst of a save: emptied, cut
// off, or with less in it than before. A file that came complete, by a rename,
// can lose objects without that suspicion.
func unfinished(f *file, print fingerprint, data []byte, c content) bool {
	text := bytes.TrimRight(data, " \t\r")
	switch {
	case len(bytes.TrimSpace(data)) == 0, c.opaque:
		return true
	case !bytes.HasSuffix(text, []byte("\n")) && !bytes.HasSuffix(text, []byte("}")):
		return true
	default:
		return print.sameFile(f.print) && f.loses(c)
	}
}
