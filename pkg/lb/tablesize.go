package lb

import "fmt"

// What a Service may take of the slots, which all share: so many for each backend,
// or a small table however few there are.
const (
	slotsPerBackend = 128
	smallTable      = 16381 // the usual size of tables for Maglev
)

// largestTable returns how many slots a Service may ask for.
func largestTable(backends int) uint32 {
	return uint32(max(smallTable, min(slotsPerBackend*backends, MaxTableSize)))
}

// tableSize returns the slots of a table for hashes that a Service asks for, 0 where it
// may not have so many: they are by the number of backends then.
func tableSize(svc *Service, backends int) uint32 {
	if asked := svc.TableSize; asked <= largestTable(backends) {
		return asked
	}
	return 0
}

// oversize returns the problem of a Service that asks for too large a table, nil for none.
func oversize(svc *Service, parts []part) *Problem {
	for _, p := range parts {
		if n := len(p.selection.members); tableSize(svc, n) != svc.TableSize {
			return &Problem{
				Object: "Service " + svc.String(), Field: "metadata.annotations[headgate.dev/table-size]",
				Value:  fmt.Sprint(svc.TableSize),
				Reason: fmt.Sprintf("is not used: it is more than %d, the most for %d backends", largestTable(n), n),
				Remedy: fmt.Sprintf("ask for %d slots, or up to %d for each backend", smallTable, slotsPerBackend),
			}
		}
	}
	return nil
}
