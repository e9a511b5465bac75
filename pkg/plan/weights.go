package plan

// A table says a weight by naming a backend that often. It has at most this many
// slots for each backend on average, or so many in all if that is more: weights
// that would take more are rounded.
const (
	slotsPerBackend  = 32
	slotsAtLeast     = 1024
	lightestRounding = 1
)

// reduce returns weights with the same ratios that are as small as can be; nil
// stays nil.
func reduce(weights []uint32) []uint32 {
	var divisor, sum uint64
	for _, w := range weights {
		divisor = gcd(divisor, uint64(w))
		sum += uint64(w)
	}
	if divisor == 0 {
		return nil
	}
	sum /= divisor
	most := uint64(max(slotsAtLeast, slotsPerBackend*len(weights)))
	out := make([]uint32, len(weights))
	for i, w := range weights {
		reduced := uint64(w) / divisor
		if sum > most {
			reduced = max(lightestRounding, (reduced*most+sum/2)/sum)
		}
		out[i] = uint32(reduced)
	}
	return out
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// repeat returns every ID as often as its weight says, with the weight of each;
// once and without weights where these are nil.
func repeat(ids, weights []uint32) (repeated, each []uint32) {
	if weights == nil {
		return ids, nil
	}
	for i, id := range ids {
		for range weights[i] {
			repeated, each = append(repeated, id), append(each, weights[i])
		}
	}
	return repeated, each
}

// interleave returns every ID as often as its weight says, each spread as evenly
// as can be: at every step the one that is furthest behind its share has its turn.
func interleave(ids, weights []uint32) []uint32 {
	if weights == nil {
		return ids
	}
	var sum int64
	for _, w := range weights {
		sum += int64(w)
	}
	credit := make([]int64, len(ids))
	out := make([]uint32, 0, sum)
	for range sum {
		best := 0
		for i, w := range weights {
			credit[i] += int64(w)
			if credit[i] > credit[best] {
				best = i
			}
		}
		credit[best] -= sum
		out = append(out, ids[best])
	}
	return out
}
