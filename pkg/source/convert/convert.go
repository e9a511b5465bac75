// Package convert makes Kubernetes API objects into what a load balancer needs
// of them (package lb). Files and the API server go through the same functions,
// so both give the same result.
//
// What a proxy need not know is left out, and nothing of the Kubernetes object
// is kept. What the API server would refuse is refused here too, since files do
// not pass through it: the object is rejected as a whole, with a Problem for
// everything that is wrong with it.
package convert

import (
	"errors"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/headgate/headgate/pkg/lb"
)

// Problems returns what is wrong, as returned by the functions of this package,
// one by one: nil for a nil error.
func Problems(err error) []lb.Problem {
	switch e := err.(type) {
	case nil:
		return nil
	case lb.Problem:
		return []lb.Problem{e}
	case interface{ Unwrap() []error }:
		var all []lb.Problem
		for _, one := range e.Unwrap() {
			all = append(all, Problems(one)...)
		}
		return all
	default:
		return []lb.Problem{{Reason: err.Error()}}
	}
}

// findings collects what is wrong with one object.
type findings struct {
	object string
	errs   []error // at most lb.MostProblems
	more   int
}

// add notes that the value of a field cannot be used.
func (f *findings) add(field, value, reason, remedy string) {
	if len(f.errs) == lb.MostProblems {
		f.more++
		return
	}
	f.errs = append(f.errs, lb.Problem{
		Object: f.object, Field: field, Value: lb.Cut(value), Reason: reason, Remedy: remedy,
	})
}

// err returns nil where nothing is wrong.
func (f *findings) err() error {
	if f.more > 0 {
		return errors.Join(append(f.errs, lb.MoreProblems("", f.object, f.more))...)
	}
	return errors.Join(f.errs...)
}

// name checks a name that must be a DNS label, or a subdomain where dots are
// allowed (RFC 1123).
func (f *findings) name(field, value string, dots bool) {
	valid := validation.IsDNS1123Label
	if dots {
		valid = validation.IsDNS1123Subdomain
	}
	switch {
	case value == "":
		f.add(field, "", "is missing", "write one")
	case len(valid(value)) > 0:
		f.add(field, value, "is not a name that Kubernetes allows",
			"use lower-case letters, digits and '-', starting and ending with a letter or digit")
	}
}
