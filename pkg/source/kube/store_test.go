package kube

import (
	"testing"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/source/convert"
	"github.com/headgate/headgate/pkg/source/objects"
)

func TestWhatIsStreamedInPlaceOfAListIsConvertedAtOnce(t *testing.T) {
	s := reflected{objects.NewStore(objects.Kinds("node-a", convert.Options{}, false)[0], objects.NewBatch("node-a"))}
	got, err := s.Transformer()(service("web", 80))
	e, ok := got.(*objects.Entry)
	if err != nil || !ok || e.Value.(*lb.Service).Ports[0].Port != 80 {
		t.Fatalf("got %v, %v", got, err)
	}
	if again, err := s.Transformer()(got); again != got || err != nil {
		t.Errorf("converted again: %v, %v", again, err)
	}
}
