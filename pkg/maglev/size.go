package maglev

// Sizes of tables, all prime. There are few, since another size moves almost every
// flow: within a step a backend that comes or goes moves its share alone. The first
// two, with the list of backends beside the table, take less than 2 and 32 KiB.
var sizes = []struct {
	backends int // at most
	size     uint32
}{
	{10, 499},
	{100, 8089},
	{1000, 65537},
}

// MaxSize is the size of tables of more backends than any other step has.
const MaxSize = 655373

// SizeFor returns the slots of a table for a number of backends.
func SizeFor(backends int) uint32 {
	for _, s := range sizes {
		if backends <= s.backends {
			return s.size
		}
	}
	return MaxSize
}
