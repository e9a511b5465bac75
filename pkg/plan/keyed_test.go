package plan

import (
	"math/rand/v2"
	"testing"
)

// pair is a record of keyed records.
type pair struct{ key, value int }

func TestKeyedRecordsAreFoundAsInAMap(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		s, want := newKeyed(func(p *pair) int { return p.key }), map[int]*pair{}
		for range 5000 {
			key := rng.IntN(600)
			switch r := s.get(key); {
			case (r == nil) != (want[key] == nil), r != nil && r != want[key]:
				t.Fatalf("seed %d: record %d is %v, want %v", seed, key, r, want[key])
			case r == nil:
				want[key] = s.add(pair{key, rng.Int()})
			case r.key != key:
				t.Fatalf("seed %d: record %d says that it is %d", seed, key, r.key)
			case rng.IntN(3) > 0:
				s.remove(key)
				delete(want, key)
			}
		}
		for r := range s.all() {
			if want[r.key] != r {
				t.Errorf("seed %d: %v is there, want %v", seed, r, want[r.key])
			}
			delete(want, r.key)
		}
		if len(want) > 0 {
			t.Errorf("seed %d: %d records are missing", seed, len(want))
		}
	}
}

func TestKeyedRecordsThatComeAndGoTakeNoMoreRoom(t *testing.T) {
	s := newKeyed(func(p *pair) int { return p.key })
	for i := range 100 * chunkOf {
		s.add(pair{key: i})
		s.remove(i - chunkOf + 1)
	}
	if len(s.chunks) > 1 || len(s.places) > 4*chunkOf {
		t.Errorf("%d chunks and %d places for %d records at a time", len(s.chunks), len(s.places), chunkOf)
	}
}

func TestRoomForExpectedRecordsIsMadeOnce(t *testing.T) {
	s := newKeyed(func(p *pair) int { return p.key })
	s.expect(1000)
	room := len(s.places)
	for i := range 1000 {
		s.add(pair{key: i})
	}
	if len(s.places) != room {
		t.Errorf("%d places for 1000 records that were expected, then %d", room, len(s.places))
	}
}

func TestRecordsAreFoundByTheNumberThatTheyWereGiven(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 2))
		s, want := newKeyed(func(p *pair) int { return p.key }), map[int]uint32{}
		for range 5000 {
			key, number := rng.IntN(600), uint32(1+rng.IntN(3000))
			has := s.numberOf(key)
			switch {
			case has != want[key]:
				t.Fatalf("seed %d: record %d has number %d, want %d", seed, key, has, want[key])
			case has != 0 && (s.at(has).key != key || s.get(key) != s.at(has)):
				t.Fatalf("seed %d: number %d is %v, want record %d", seed, has, s.at(has), key)
			case has != 0:
				s.removeAt(has)
				delete(want, key)
			case len(s.chunks)*chunkOf < int(number) || *s.at(number) == (pair{}): // nobody has it
				s.addAt(number, pair{key, rng.Int() | 1})
				want[key] = number
			}
		}
		if s.len != len(want) {
			t.Errorf("seed %d: %d records, want %d", seed, s.len, len(want))
		}
	}
}
