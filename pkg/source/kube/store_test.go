package kube

import (
	"testing"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/source/convert"
	"github.com/headgate/headgate/pkg/source/objects"
)

func TestWhatIsStreamedInPlaceOfAListIsKeptAsEntries(t *testing.T) {
	s := reflected{objects.NewStore(objects.Kinds("node-a", convert.Options{}, false)[0], objects.NewBatch("node-a"))}
	want := &objects.Entry{Value: &lb.Service{}}
	got, err := s.Transformer()(&object{entry: want})
	if err != nil || got != want {
		t.Fatalf("got %v, %v", got, err)
	}
	if again, err := s.Transformer()(got); again != want || err != nil {
		t.Errorf("once more: %v, %v", again, err)
	}
}
