package maglev

import "math/bits"

// slack is how much more than its share a backend may have, in percent.
const slack = 2

// draws is how many draws there are for each slot. What nobody has drawn then, or
// only those who are full, is ranked in full.
const draws = 8

// FillStable returns a table as Fill does, of which fewer slots change when a
// backend comes or goes. Every backend draws slots, again and again; who has drawn
// a slot earliest has it, up to slack percent more than its share. What a backend
// draws, and how early, does not depend on the others: only slots that they leave
// to each other because somebody is full move without need. This is highest random
// weight (Thaler and Ravishankar, 1998) with bounded loads (Mirrokni et al., 2018),
// with as many hashes for a slot as there are draws, not backends.
//
// A backend of twice the weight draws twice as often in the same time.
func FillStable(key Key, backends []Backend, size uint32) []uint32 {
	if len(backends) == 0 || size == 0 {
		return nil
	}
	order, heaviest, sum := rank(key, backends)
	table := make([]uint32, size)
	for i := range table {
		table[i] = free
	}
	s := stable{order: order, table: table, room: rooms(order, sum, size), left: size}
	s.draw(heaviest, sum)
	s.rest()
	return table
}

// stable is a table that is being filled.
type stable struct {
	order []ranked
	table []uint32
	room  []uint32 // slots that each may still take
	left  uint32   // free slots
}

// rooms returns the most slots that each backend may have: its share and the slack,
// rounded, but never less than the share rounded up, so that there is room for all.
func rooms(order []ranked, sum uint64, size uint32) []uint32 {
	room := make([]uint32, len(order))
	for i, b := range order {
		share := uint64(size) * b.weight
		room[i] = uint32(max((share*(100+slack)+50*sum)/(100*sum), (share+sum-1)/sum))
	}
	return room
}

// draw lets every backend draw, in rounds.
func (s *stable) draw(heaviest, sum uint64) {
	rounds := draws * uint64(len(s.table)) * heaviest / sum
	credit := make([]uint64, len(s.order))
	drawn := make([]uint64, len(s.order))
	for range rounds {
		for i := range s.order {
			b := &s.order[i]
			if credit[i] += b.weight; credit[i] < heaviest {
				continue
			}
			credit[i] -= heaviest
			drawn[i]++
			if s.room[i] == 0 {
				continue
			}
			slot, _ := bits.Mul64(mix(b.hash+drawn[i]*golden), uint64(len(s.table)))
			if s.table[slot] != free {
				continue
			}
			s.take(uint32(slot), i)
			if s.left == 0 {
				return
			}
		}
	}
}

func (s *stable) take(slot uint32, i int) {
	s.table[slot] = s.order[i].index
	s.room[i]--
	s.left--
}

// rest gives the slots that are still free to who ranks highest there among those
// that have room.
func (s *stable) rest() {
	for slot := range s.table {
		if s.table[slot] != free {
			continue
		}
		best, most := -1, uint64(0)
		for i := range s.order {
			if s.room[i] == 0 {
				continue
			}
			if h := mix(s.order[i].hash ^ mix(uint64(slot)+golden)); best < 0 || h > most {
				best, most = i, h
			}
		}
		s.take(uint32(slot), best)
	}
}
