package protobuf

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The fields of metadata that matter, and of entries of labels and annotations.
const (
	metaName        protowire.Number = 1
	metaNamespace   protowire.Number = 3
	metaUID         protowire.Number = 5
	metaVersion     protowire.Number = 6
	metaCreated     protowire.Number = 8
	metaLabels      protowire.Number = 11
	metaAnnotations protowire.Number = 12

	entryKey   protowire.Number = 1
	entryValue protowire.Number = 2
)

// metaReader reads metadata.
type metaReader struct {
	names               interned[string] // of namespaces, labels and annotations
	labels, annotations map[string]string
}

func newMetaReader() metaReader {
	return metaReader{names: internedBy(text), labels: map[string]string{}, annotations: map[string]string{}}
}

// read reads what matters of every object.
func (r *metaReader) read(b []byte) metav1.ObjectMeta {
	clear(r.labels)
	clear(r.annotations)
	meta := metav1.ObjectMeta{Labels: r.labels, Annotations: r.annotations}
	for v := (fields{rest: b}); v.next(); {
		switch v.number {
		case metaName:
			meta.Name = string(v.bytes)
		case metaNamespace:
			meta.Namespace = *r.names.of(v.bytes)
		case metaVersion:
			meta.ResourceVersion = string(v.bytes)
		case metaLabels:
			r.entry(v.bytes, r.labels)
		case metaAnnotations:
			r.entry(v.bytes, r.annotations)
		}
	}
	return meta
}

// age reads how old an object is.
func (r *metaReader) age(b []byte, into *metav1.ObjectMeta) {
	for v := (fields{rest: b}); v.next(); {
		switch v.number {
		case metaUID:
			into.UID = types.UID(v.bytes)
		case metaCreated:
			_ = into.CreationTimestamp.Unmarshal(v.bytes) // it takes what fits
		}
	}
}

// entry reads a label or an annotation, if it matters.
func (r *metaReader) entry(b []byte, into map[string]string) {
	var key, val []byte
	for v := (fields{rest: b}); v.next(); {
		switch v.number {
		case entryKey:
			key = v.bytes
		case entryValue:
			val = v.bytes
		}
	}
	if matters(key) {
		into[*r.names.of(key)] = string(val)
	}
}

// matters says whether a label or an annotation may: those of ours and of Kubernetes, but
// for kubectl's, of which one is the whole object once more.
func matters(key []byte) bool {
	domain, _, _ := bytes.Cut(key, []byte("/"))
	for _, d := range []string{"headgate.dev", "kubernetes.io", "k8s.io"} {
		if bytes.HasSuffix(domain, []byte(d)) {
			return !bytes.HasPrefix(domain, []byte("kubectl."))
		}
	}
	return false
}
