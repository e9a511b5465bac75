package plan

import (
	"hash/maphash"
	"iter"
)

// keyed is records, found by the key that is in each of them, or by a number. It takes what its
// records take, and some eight bytes more for each: a map of pointers has every key twice, and as
// much room again. A record stays where it is until it is removed. Records get numbers by add, or
// have some by addAt, as what has an ID in a map; not both.
type keyed[K comparable, R any] struct {
	keyOf  func(*R) K
	seed   maphash.Seed
	chunks []*[chunkOf]R
	free   []uint32 // numbers by add of records that were removed
	// A hash table: numbers of records, 0 for none; a power of two of them. The bits that
	// numbers leave have some of the hash, so that hardly another record is read in a search.
	places []uint32
	len    int
}

// chunkOf is how many records are made room for at once.
const chunkOf = 128

func newKeyed[K comparable, R any](keyOf func(*R) K) *keyed[K, R] {
	return &keyed[K, R]{keyOf: keyOf, seed: maphash.MakeSeed(), places: make([]uint32, 8)}
}

// at returns a record by its number, which begins at 1.
func (k *keyed[K, R]) at(number uint32) *R { return &k.chunks[(number-1)/chunkOf][(number-1)%chunkOf] }

// find returns the place of a key: where its record is, or where it is to be, and what stands
// there beside the number.
func (k *keyed[K, R]) find(key K) (place int, tag uint32) {
	hash := maphash.Comparable(k.seed, key)
	tag = uint32(hash>>32) &^ k.mask()
	for place = int(hash) & int(k.mask()); k.places[place] != 0; place = k.next(place) {
		if k.places[place]&^k.mask() == tag && k.keyOf(k.at(k.number(place))) == key {
			break
		}
	}
	return place, tag
}

// mask has the bits of numbers, which are fewer than places.
func (k *keyed[K, R]) mask() uint32 { return uint32(len(k.places) - 1) }

// number returns the number at a place.
func (k *keyed[K, R]) number(place int) uint32 { return k.places[place] & k.mask() }

// home returns the place where the search for a key begins.
func (k *keyed[K, R]) home(key K) int { return int(maphash.Comparable(k.seed, key)) & int(k.mask()) }

func (k *keyed[K, R]) next(place int) int { return (place + 1) & (len(k.places) - 1) }

// get returns the record of a key, nil for none.
func (k *keyed[K, R]) get(key K) *R {
	if number := k.numberOf(key); number != 0 {
		return k.at(number)
	}
	return nil
}

// numberOf returns the number of the record of a key, 0 for none.
func (k *keyed[K, R]) numberOf(key K) uint32 {
	place, _ := k.find(key)
	return k.number(place)
}

// add takes over a record, whose key is not there yet.
func (k *keyed[K, R]) add(record R) *R {
	number := uint32(k.len + 1)
	if n := len(k.free); n > 0 {
		number, k.free = k.free[n-1], k.free[:n-1]
	}
	return k.addAt(number, record)
}

// addAt takes over a record, whose key is not there yet, under a number that no other has. Numbers
// take room up to the greatest.
func (k *keyed[K, R]) addAt(number uint32, record R) *R {
	for len(k.chunks)*chunkOf < int(number) {
		k.chunks = append(k.chunks, new([chunkOf]R))
	}
	for k.len++; k.len*4 > len(k.places)*3 || int(number) >= len(k.places); {
		k.grow()
	}
	r := k.at(number)
	*r = record
	k.put(number)
	return r
}

// put has a record found.
func (k *keyed[K, R]) put(number uint32) {
	place, tag := k.find(k.keyOf(k.at(number)))
	k.places[place] = tag | number
}

// expect makes room for so many records, as long as there is none.
func (k *keyed[K, R]) expect(records int) {
	for records*4 > len(k.places)*3 {
		k.places = make([]uint32, 2*len(k.places))
	}
}

// grow makes room for twice as many.
func (k *keyed[K, R]) grow() {
	old, mask := k.places, k.mask()
	k.places = make([]uint32, 2*len(old))
	for _, place := range old {
		if place != 0 {
			k.put(place & mask)
		}
	}
}

// remove forgets the record of a key, which has its number by add.
func (k *keyed[K, R]) remove(key K) {
	if number := k.numberOf(key); number != 0 {
		k.removeAt(number)
		k.free = append(k.free, number)
	}
}

// removeAt forgets the record that has a number. Those behind it move up to where they are searched.
func (k *keyed[K, R]) removeAt(number uint32) {
	hole, _ := k.find(k.keyOf(k.at(number)))
	k.len--
	var none R
	*k.at(number), k.places[hole] = none, 0
	for place := k.next(hole); k.places[place] != 0; place = k.next(place) {
		home := k.home(k.keyOf(k.at(k.number(place))))
		if k.from(home, place) >= k.from(hole, place) {
			k.places[hole], k.places[place], hole = k.places[place], 0, place
		}
	}
}

// from returns how many places one is behind another.
func (k *keyed[K, R]) from(first, place int) int { return (place - first) & (len(k.places) - 1) }

// all returns the records, in no order. Records are not to be added or removed meanwhile.
func (k *keyed[K, R]) all() iter.Seq[*R] {
	return func(yield func(*R) bool) {
		for place, taken := range k.places {
			if taken != 0 && !yield(k.at(k.number(place))) {
				return
			}
		}
	}
}
