package protobuf

import (
	"bytes"
	"reflect"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime"
)

// magic is what protobuf of the API begins with.
var magic = []byte("k8s\x00")

// The fields of the envelope, a runtime.Unknown, and of the type in it.
const (
	envelopeType protowire.Number = 1
	envelopeRaw  protowire.Number = 2
	typeVersion  protowire.Number = 1
	typeKind     protowire.Number = 2
)

var envelopeShape = shapeOf(reflect.TypeFor[runtime.Unknown]())

// envelope is what a message says of itself, and the message.
type envelope struct {
	version, kind []byte
	raw           []byte
}

// open opens an envelope, without a copy; ok is false where the data is none.
func open(data []byte) (e envelope, ok bool) {
	data, ok = bytes.CutPrefix(data, magic)
	if !ok || !envelopeShape.fits(data) {
		return e, false
	}
	for v := (fields{rest: data}); v.next(); {
		switch v.number {
		case envelopeType:
			for t := (fields{rest: v.bytes}); t.next(); {
				switch t.number {
				case typeVersion:
					e.version = t.bytes
				case typeKind:
					e.kind = t.bytes
				}
			}
		case envelopeRaw:
			e.raw = v.bytes
		}
	}
	return e, true
}
