package plan

import "testing"

func TestOwnersOfASlotAreEachNamedOnceTheLastFirst(t *testing.T) {
	var o Owners
	now := uint32(1)
	for _, step := range []struct {
		next uint32
		want string
	}{
		{2, "1"}, {3, "2,1"}, {1, "3,2"}, {4, "1,3,2"}, {5, "4,1,3,2"}, {6, "5,4,1,3,2"},
		{7, "6,5,4,1,3,2"}, {8, "7,6,5,4,1,3,2"}, {9, "8,7,6,5,4,1,3"}, {4, "9,8,7,6,5,1,3"},
	} {
		o = o.After(now, step.next)
		if now = step.next; o.String() != step.want {
			t.Fatalf("a slot that names %d has the former owners %s, want %s", now, o, step.want)
		}
	}
}
