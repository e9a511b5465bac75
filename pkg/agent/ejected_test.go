package agent

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/lb"
)

func TestOwnersHearOfEjectedBackendsOfTheirServices(t *testing.T) {
	m := newFakeMaps()
	m.serve("web", lb.Random, 1, 2)
	m.serve("api", lb.Random, 2, 3)
	m.serve("careless", lb.Random, 2)
	for at, f := range m.held.Frontends {
		if m.held.Services[f.Service].Name != "careless" {
			f.PassiveHealth = lb.SwitchOn
			m.held.Frontends[at] = f
		}
	}
	for _, c := range []struct {
		ejected []uint32
		want    []string
	}{
		{nil, nil},
		{[]uint32{9}, nil},
		{[]uint32{2}, []string{"Service default/api 10.244.0.2:80/TCP", "Service default/web 10.244.0.2:80/TCP"}},
		{[]uint32{1, 3}, []string{"Service default/api 10.244.0.3:80/TCP", "Service default/web 10.244.0.1:80/TCP"}},
	} {
		problems, err := ejectedProblems(m, c.ejected)
		var got []string
		for _, p := range problems {
			got = append(got, p.Object+" "+p.Value)
		}
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("of ejected %v, %v (-want +got):\n%s", c.ejected, err, diff)
		}
	}
}
