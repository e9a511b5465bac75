package cli

import (
	"strings"
	"testing"
)

// Stories that differ in the address alone, or by chance, are told once, and each address has a line.
func TestAddressesWithTheSameStoryHaveItOnce(t *testing.T) {
	at := func(address, kind string) explanation {
		return explanation{
			Client: "a process", Decided: "at connect()", Address: address, Frontend: address, Kind: kind, Service: "default/web/TCP",
			To: "b", Outcome: "this connect() goes to b", Backends: []explainedShare{{Backend: "b", Percent: new(50.0), Health: "avoided for 8s by the client"}},
		}
	}
	first, chance, moment := at("10.96.0.10:80/TCP", "ClusterIP"), at("203.0.113.20:80/TCP", "LoadBalancer"), at("192.0.2.1:30080/TCP", "NodePort")
	chance.To, chance.Outcome, chance.Remedy = "c", "this connect() goes to c", "of c"
	chance.Backends[0].Now = new(0.0)
	moment.Backends[0].Health, moment.Backends[0].RetryDue = "avoided for 9s by the client", true
	unreached, alike, refused := at("[fd00::10]:80/TCP", "ClusterIP"), at("[fd00::20]:80/TCP", "LoadBalancer"), at("203.0.113.21:80/TCP", "LoadBalancer")
	unreached.Backends[0].NoRoute, alike.Backends[0].NoRoute = true, true
	refused.To, refused.Refused, refused.Outcome = "", "source_range", "refused: source_range, which is counted"
	all := []explanation{first, chance, unreached, moment, alike, refused}
	var lines, stories []string
	for i, row := range storiesOf(all) {
		if i < len(all) {
			lines = append(lines, strings.Join(row, " "))
		} else if row[0] == "frontend" {
			at, _, _ := strings.Cut(row[1], ",")
			stories = append(stories, at)
		}
	}
	if got := strings.Join(lines[3:], "\n"); got != `192.0.2.1:30080/TCP NodePort this connect() goes to b
[fd00::20]:80/TCP LoadBalancer this connect() goes to b
203.0.113.21:80/TCP LoadBalancer refused: source_range` {
		t.Errorf("the lines are\n%s", got)
	}
	if got := strings.Join(stories, " "); got != first.Frontend+" "+unreached.Frontend+" "+refused.Frontend {
		t.Errorf("stories are told of %s", got)
	}
	if rows := storiesOf(all[:1]); rows[0][0] != "client" {
		t.Errorf("a single address has a line: %q", rows)
	}
}
