package manifest

import (
	"crypto/sha256"
	"fmt"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/source/objects"
)

// file is one file as last read, and what is in force of it.
type file struct {
	name      string
	path      string
	print     fingerprint // zero: to be read again at the next opportunity
	content   content
	entries   map[objects.ID]*entry
	problems  []lb.Problem // at most lb.MostProblems, and one that counts the others
	more      int
	unread    bool // something in it cannot be read
	vanishing bool // it is gone, which is not believed yet
}

// entry is an object of a file.
type entry struct {
	value any  // of the last good version
	good  bool // there has been a good version
	owner lb.ServiceName
}

// content is what the text of a file says, document by document.
type content struct {
	documents []placed
	byText    map[[sha256.Size]byte]*document
	more      int  // findings that are not kept
	opaque    bool // there may be objects that cannot be told
}

// placed is a document and where it is in its file.
type placed struct {
	*document
	line   int // from 1
	number int // from 1
}

// read decodes a text. Documents that were in the earlier version of the file
// are taken from there: a change costs what has changed. What is wrong is kept of
// the first documents only, since a file may be nothing but mistakes.
func (dec decoder) read(data []byte, earlier content) content {
	c := content{byText: map[[sha256.Size]byte]*document{}}
	room := lb.MostProblems
	for i, chunk := range split(data) {
		sum := sha256.Sum256(chunk.text)
		d := c.byText[sum]
		if d == nil && chunk.err == nil {
			d = earlier.byText[sum]
		}
		if d == nil || chunk.err != nil {
			d = dec.decode(chunk)
		}
		cut := d.within(room)
		if chunk.err == nil && cut == d {
			c.byText[sum] = d
		}
		room -= len(cut.findings)
		c.more += cut.more
		c.opaque = c.opaque || cut.opaque
		if len(cut.findings)+len(cut.objects) > 0 {
			c.documents = append(c.documents, placed{document: cut, line: chunk.line, number: i + 1})
		}
	}
	return c
}

// ids returns the objects that the content names, good or bad.
func (c content) ids() map[objects.ID]bool {
	ids := map[objects.ID]bool{}
	for _, d := range c.documents {
		for _, o := range d.objects {
			ids[o.ID] = true
		}
	}
	return ids
}

// loses says whether objects that the file has are not in a new content.
func (f *file) loses(c content) bool {
	ids := c.ids()
	for id := range f.entries {
		if !ids[id] {
			return true
		}
	}
	return false
}

// update takes over a new content: good objects as they are, of bad ones what
// was last good of them, and of unreadable documents whatever was there.
func (f *file) update(c content) {
	old := f.entries
	f.content, f.entries, f.problems, f.more = c, map[objects.ID]*entry{}, nil, c.more
	for _, d := range c.documents {
		for _, finding := range d.findings {
			f.find(f.locate(d, finding))
		}
		for _, o := range d.objects {
			f.add(d, o, old[o.ID])
		}
	}
	if f.more > 0 {
		f.problems = append(f.problems, lb.MoreProblems(f.path, "", f.more))
	}
	if f.unread = c.opaque; !f.unread {
		return
	}
	for id, e := range old {
		if f.entries[id] == nil {
			f.entries[id] = e
		}
	}
}

// find notes what is wrong with the file.
func (f *file) find(p lb.Problem) {
	if len(f.problems) == lb.MostProblems {
		f.more++
		return
	}
	f.problems = append(f.problems, p)
}

// add takes over one object; old is what the file had of it.
func (f *file) add(d placed, o object, old *entry) {
	if f.entries[o.ID] != nil {
		f.find(f.locate(d, finding{Problem: lb.Problem{Object: o.String(),
			Reason: "is in this file twice, the first one counts", Remedy: "remove one of them"}}))
		return
	}
	e := &entry{value: from(f.path, o.value), good: !o.bad, owner: o.owner}
	if o.bad && old != nil {
		e.value, e.good = old.value, old.good
	}
	f.entries[o.ID] = e
}

// from returns a value with the file that it is from. Equal documents share their
// values, so that of a Service is a copy.
func from(file string, value any) any {
	svc, ok := value.(*lb.Service)
	if !ok {
		return value
	}
	out := *svc
	out.File = file
	return &out
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
