package protobuf_test

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	reader "github.com/headgate/headgate/pkg/source/protobuf"
)

func TestWhatAServerWritesIsReadAsTheDecoderOfTheAPIReadsIt(t *testing.T) {
	for i, k := range kinds {
		t.Run(k.Name, func(t *testing.T) {
			r, one, good := newRandom(1), reader.NewReader(gvk(k)), 0
			for range 300 {
				o := r.object(i)
				if mustAgree(t, one, k, mustEncode(t, gvk(k), o)) {
					t.Fatal("an object is left to the decoder of the API")
				}
				if k.Read(o).Value != nil {
					good++
				}
				if mustAgree(t, one, k, mustEncodeList(t, k, r.object(i), r.object(i), r.object(i))) {
					t.Fatal("a list is left to the decoder of the API")
				}
			}
			if good < 50 {
				t.Errorf("%d of 300 are good: few values are compared", good)
			}
		})
	}
}

func TestDamagedBytesAreNeverReadInAnotherWay(t *testing.T) {
	for i, k := range kinds {
		t.Run(k.Name, func(t *testing.T) {
			r, one, read := newRandom(2), reader.NewReader(gvk(k)), 0
			for range 3000 {
				data := mustEncode(t, gvk(k), r.object(i))
				if r.IntN(4) == 0 {
					data = mustEncodeList(t, k, r.object(i), r.object(i))
				}
				if !mustAgree(t, one, k, r.damage(data)) {
					read++
				}
			}
			if read < 150 {
				t.Errorf("%d of 3000 were read: damage does not reach values", read)
			}
		})
	}
}

func TestWhatIsReadOutlastsTheNextObject(t *testing.T) {
	for i, k := range kinds {
		t.Run(k.Name, func(t *testing.T) {
			r, one := newRandom(3), reader.NewReader(gvk(k))
			var got, want []seen
			for range 100 {
				o := r.object(i)
				want = append(want, see(k, o))
				got = append(got, see(k, one.Object(mustEncode(t, gvk(k), o))))
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("read\n%s\nwant\n%s", show(got), show(want))
			}
		})
	}
}

func TestOtherKindsAreLeftToTheDecoderOfTheAPI(t *testing.T) {
	services, slices := kinds[0], kinds[1]
	data := mustEncode(t, gvk(services), newRandom(4).object(0))
	for _, k := range []schema.GroupVersionKind{gvk(slices), corev1.SchemeGroupVersion.WithKind("Node"), {Version: "v2", Kind: "Service"}} {
		if o := reader.NewReader(k).Object(data); o != nil {
			t.Errorf("a reader of %s reads %T", k, o)
		}
	}
	r := reader.NewReader(gvk(services))
	if r.Object(data) == nil || r.List(data, func(reader.Object) {}) != nil {
		t.Error("an object is read as a list, or not at all")
	}
	list := mustEncodeList(t, services, newRandom(4).object(0))
	if r.Object(list) != nil || r.List(list, func(reader.Object) {}) == nil {
		t.Error("a list is read as an object, or not at all")
	}
}

// FuzzReader reads any bytes, and compares with the decoder of the API.
func FuzzReader(f *testing.F) {
	r := newRandom(5)
	for i, k := range kinds {
		for range 4 {
			f.Add(mustEncode(f, gvk(k), r.object(i)))
			f.Add(mustEncodeList(f, k, r.object(i), r.object(i)))
		}
	}
	readers := map[string]*reader.Reader{}
	for _, k := range kinds {
		readers[k.Name] = reader.NewReader(gvk(k))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, k := range kinds {
			mustAgree(t, readers[k.Name], k, data)
		}
	})
}
