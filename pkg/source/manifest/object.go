package manifest

import (
	"slices"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/source/objects"
)

// object is one object as a file has it.
type object struct {
	objects.ID
	value any            // see objects.Entry, nil where it is bad
	bad   bool           // whatever was good before stays
	owner lb.ServiceName // the Service that the object belongs to, where known
}

// finding is a Problem that does not know its place in the file yet.
type finding struct {
	lb.Problem
	line int // in the document, from 0
}

// document is what one document of a file says. It depends on nothing but its
// text, so that it is kept as long as the text stays.
type document struct {
	objects  []object
	findings []finding // at most lb.MostProblems
	more     int       // findings that are not kept
	opaque   bool      // there may be objects in it that cannot be told
}

// find notes what is wrong.
func (d *document) find(f finding) {
	if len(d.findings) == lb.MostProblems {
		d.more++
		return
	}
	d.findings = append(d.findings, f)
}

// within returns the document with room for so many findings; the others are
// counted.
func (d *document) within(room int) *document {
	if len(d.findings) <= room {
		return d
	}
	cut := *d
	cut.findings, cut.more = slices.Clone(d.findings[:room]), d.more+len(d.findings)-room
	return &cut
}

// reject notes what is wrong with an object.
func (d *document) reject(id objects.ID, m mistake) {
	d.find(finding{Problem: lb.Problem{
		Object: id.String(), Field: m.field, Value: m.value, Reason: m.reason, Remedy: m.remedy,
	}})
}
