package protobuf

import (
	"reflect"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// numbers is one more than the greatest number of a field that a shape knows.
const numbers = 64

// shape is what the messages of a type look like, by the numbers of their fields.
type shape [numbers]field

// field is the zero value where a message knows no field of a number.
type field struct {
	known    bool
	repeated bool
	wire     protowire.Type
	within   *shape // of a message, else nil
}

// disguised are types that are written as messages of other types.
var disguised = map[reflect.Type]reflect.Type{
	reflect.TypeFor[metav1.Time](): reflect.TypeFor[metav1.Timestamp](),
	reflect.TypeFor[metav1.FieldsV1](): reflect.TypeFor[struct {
		Raw []byte `protobuf:"bytes,1,opt,name=Raw"`
	}](),
}

// mapEntry is how an entry of a map of strings is written.
var mapEntry = &shape{
	1: {known: true, wire: protowire.BytesType},
	2: {known: true, wire: protowire.BytesType},
}

// shapeOf reads the shape of a message from the tags of its Go type.
func shapeOf(t reflect.Type) *shape {
	if as, ok := disguised[t]; ok {
		t = as
	}
	s := &shape{}
	for i := range t.NumField() {
		parts := strings.Split(t.Field(i).Tag.Get("protobuf"), ",")
		if len(parts) < 2 {
			continue
		}
		// A number that is none, or too great, stays unknown.
		if n, err := strconv.Atoi(parts[1]); err == nil && n > 0 && n < numbers {
			s[n] = fieldOf(t.Field(i).Type)
		}
	}
	return s
}

// fieldOf says how values of a Go type are written: the wire type that tags name is
// wrong in places.
func fieldOf(t reflect.Type) field {
	switch t.Kind() {
	case reflect.Pointer:
		return fieldOf(t.Elem())
	case reflect.Map:
		return field{known: true, repeated: true, wire: protowire.BytesType, within: mapEntry}
	case reflect.Slice:
		if t.Elem().Kind() != reflect.Uint8 {
			f := fieldOf(t.Elem())
			f.repeated = true
			return f
		}
	case reflect.Struct:
		return field{known: true, wire: protowire.BytesType, within: shapeOf(t)}
	case reflect.Bool, reflect.Int32, reflect.Int64:
		return field{known: true, wire: protowire.VarintType}
	}
	return field{known: true, wire: protowire.BytesType}
}

// fits says whether a message is as its type has it written: known fields of the right wire
// type, at most one of those that are not repeated, all within its bounds. The decoder of
// the API takes whatever fits, and some more.
func (s *shape) fits(b []byte) bool {
	var seen uint64
	for len(b) > 0 {
		v, n := consume(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		if v.number >= numbers || !s[v.number].known {
			continue
		}
		f, bit := &s[v.number], uint64(1)<<v.number
		if v.wire != f.wire || !f.repeated && seen&bit != 0 || f.within != nil && !f.within.fits(v.bytes) {
			return false
		}
		seen |= bit
	}
	return true
}

// value is a field of a message.
type value struct {
	number protowire.Number
	wire   protowire.Type
	bytes  []byte // of a field that has bytes, else nil
}

// consume returns the first field of a message and its length, which is negative where
// there is none. Groups, which the API has no use for, are none.
func consume(b []byte) (v value, n int) {
	length := 0
	if v.number, v.wire, n = protowire.ConsumeTag(b); n < 0 {
		return v, n
	}
	switch v.wire {
	case protowire.BytesType:
		v.bytes, length = protowire.ConsumeBytes(b[n:])
	case protowire.StartGroupType, protowire.EndGroupType:
		return v, -1
	default:
		length = protowire.ConsumeFieldValue(v.number, v.wire, b[n:])
	}
	if length < 0 {
		return v, length
	}
	return v, n + length
}

// fields goes through the fields of a message that fits.
type fields struct {
	value
	rest []byte
}

// next goes to the next field, and says whether there is one.
func (f *fields) next() bool {
	v, n := consume(f.rest)
	if n > 0 {
		f.value, f.rest = v, f.rest[n:]
	}
	return n > 0
}
