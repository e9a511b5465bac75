package manifest

import (
	"crypto/sha256"
	"fmt"

	"github.com/headgate/headgate/pkg/lb"
)

// file is one file as last read, and what is in force of it.
type file struct {
	name      string
	path      string
	print     fingerprint // zero: to be read again at the next opportunity
	content   content
	entries   map[key]*entry
	problems  []lb.Problem
	unread    bool // something in it cannot be read
	vanishing bool // it is gone, which is not believed yet
}

// entry is an object of a file.
type entry struct {
	value value // of the last good version
	good  bool  // there has been a good version
	bad   bool  // the newest version is not one
	holds lb.ServiceName
}

// content is what the text of a file says, document by document.
type content struct {
	documents []placed
	byText    map[[sha256.Size]byte]*document
}

// placed is a document and where it is in its file.
type placed struct {
	*document
	line   int // from 1
	number int // from 1
}

// read decodes a text. Documents that were in the earlier version of the file
// are taken from there: a change costs what has changed.
func (dec decoder) read(data []byte, earlier content) content {
	c := content{byText: map[[sha256.Size]byte]*document{}}
	for i, chunk := range split(data) {
		sum := sha256.Sum256(chunk.text)
		d := c.byText[sum]
		if d == nil && chunk.err == nil {
			d = earlier.byText[sum]
		}
		if d == nil || chunk.err != nil {
			d = dec.decode(chunk)
		}
		if chunk.err == nil {
			c.byText[sum] = d
		}
		c.documents = append(c.documents, placed{document: d, line: chunk.line, number: i + 1})
	}
	return c
}

// opaque says whether there may be objects that cannot be told.
func (c content) opaque() bool {
	for _, d := range c.documents {
		if d.opaque {
			return true
		}
	}
	return false
}

// keys returns the objects that the content names, good or bad.
func (c content) keys() map[key]bool {
	keys := map[key]bool{}
	for _, d := range c.documents {
		for _, o := range d.objects {
			keys[o.key] = true
		}
	}
	return keys
}

// loses says whether objects that the file has are not in a new content.
func (f *file) loses(c content) bool {
	keys := c.keys()
	for k := range f.entries {
		if !keys[k] {
			return true
		}
	}
	return false
}

// update takes over a new content: good objects as they are, of bad ones what
// was last good of them, and of unreadable documents whatever was there.
func (f *file) update(c content) {
	old := f.entries
	f.content, f.entries, f.problems = c, map[key]*entry{}, nil
	for _, d := range c.documents {
		for _, finding := range d.findings {
			f.problems = append(f.problems, f.locate(d, finding))
		}
		for _, o := range d.objects {
			f.add(d, o, old[o.key])
		}
	}
	if f.unread = c.opaque(); !f.unread {
		return
	}
	for k, e := range old {
		if f.entries[k] == nil {
			f.entries[k] = e
		}
	}
}

// add takes over one object; old is what the file had of it.
func (f *file) add(d placed, o object, old *entry) {
	if f.entries[o.key] != nil {
		f.problems = append(f.problems, f.locate(d, finding{Problem: lb.Problem{Object: o.key.String(),
			Reason: "is in this file twice, the first one counts", Remedy: "remove one of them"}}))
		return
	}
	e := &entry{value: o.value.from(f.path), good: !o.bad, bad: o.bad, holds: o.holds}
	if o.bad && old != nil {
		e.value, e.good = old.value, old.good
	}
	f.entries[o.key] = e
}

// locate makes a finding into a Problem that says where in the file it is.
func (f *file) locate(d placed, found finding) lb.Problem {
	p := found.Problem
	p.File = fmt.Sprintf("%s:%d", f.path, d.line+found.line)
	if p.Object == "" {
		p.Object = fmt.Sprintf("document %d", d.number)
	}
	return p
}
