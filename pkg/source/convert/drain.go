package convert

import (
	"strconv"
	"time"
)

// AnnotationDrainTime says how long what is connected to a backend may go on
// after the backend has left the Service.
const AnnotationDrainTime = "headgate.dev/drain-time"

// longestDrain is the longest drain time: backends that drain take up room.
const longestDrain = 24 * time.Hour

// drainTime returns the drain time of a Service, 0 where none is given or what
// is given makes no sense.
func (f *findings) drainTime(annotations map[string]string) time.Duration {
	value, given := annotations[AnnotationDrainTime]
	if !given {
		return 0
	}
	drain, err := time.ParseDuration(value)
	if seconds, bad := strconv.ParseUint(value, 10, 32); bad == nil {
		drain, err = time.Duration(seconds)*time.Second, nil
	}
	const field = "metadata.annotations[" + AnnotationDrainTime + "]"
	switch {
	case err != nil:
		f.add(field, value, "is not a duration, and has no effect", `write seconds, such as "30", or a duration, such as "5m"`)
		return 0
	case drain < 0 || drain > longestDrain:
		f.add(field, value, "is out of range, and has no effect", `write 0 to 24 hours`)
		return 0
	}
	return drain
}
