package kube

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/source/convert"
)

// emptyWatch is what client-go gives in place of a watch after a time-out.
type emptyWatch struct{ watch.Interface }

// objectsIn returns the types of the API that can be reached from a type.
func objectsIn(t reflect.Type, seen map[reflect.Type]bool) (found []string) {
	if seen[t] {
		return nil
	}
	seen[t] = true
	if strings.HasPrefix(t.PkgPath(), "k8s.io/") {
		return []string{t.String()}
	}
	switch t.Kind() {
	case reflect.Map:
		found = append(found, objectsIn(t.Key(), seen)...)
		fallthrough
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Chan:
		found = append(found, objectsIn(t.Elem(), seen)...)
	case reflect.Struct:
		for i := range t.NumField() {
			found = append(found, objectsIn(t.Field(i).Type, seen)...)
		}
	case reflect.Interface:
		found = append(found, t.String()) // which could be anything
	}
	return found
}

// TestNoObjectOfTheAPIIsKept looks at types: what a store and the batch hold
// cannot lead to an object of the API.
func TestNoObjectOfTheAPIIsKept(t *testing.T) {
	for _, v := range []any{
		newStore(services(convert.Options{}), nil), newStore(endpointSlices(), nil), newStore(nodes(""), nil),
		newStore(serviceCIDRs(), nil), entry[lb.Service]{},
	} {
		for _, found := range objectsIn(reflect.TypeOf(v), map[reflect.Type]bool{}) {
			t.Errorf("%T can hold %s", v, found)
		}
	}
}

func TestWhatIsStreamedInPlaceOfAListIsConvertedAtOnce(t *testing.T) {
	s := newStore(services(convert.Options{}), newBatch("node-a"))
	got, err := s.Transformer()(service("web", 80))
	e, ok := got.(*entry[lb.Service])
	if err != nil || !ok || e.value.Ports[0].Port != 80 {
		t.Fatalf("got %v, %v", got, err)
	}
	if again, err := s.Transformer()(got); again != got || err != nil {
		t.Errorf("converted again: %v, %v", again, err)
	}
}
