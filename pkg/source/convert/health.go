package convert

import (
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// longestSlowStart is the longest slow start.
const longestSlowStart = time.Hour

func (f *findings) zonePolicy(value string) lb.ZonePolicy {
	if value == "" {
		return lb.ZoneHints
	}
	z, ok := lb.ParseZonePolicy(value)
	if !ok {
		f.add(annotation(AnnotationZonePolicy), value, "is not a zone policy; the former one stays in force",
			"write one of "+strings.Join(lb.ZonePolicies(), ", "))
	}
	return z
}

func (f *findings) passiveHealth(value string) lb.Switch {
	switch value {
	case "":
		return lb.SwitchDefault
	case "on":
		return lb.SwitchOn
	case "off":
		return lb.SwitchOff
	}
	f.add(annotation(AnnotationPassiveHealth), value, "is neither on nor off; what was in force stays", "write on or off")
	return lb.SwitchDefault
}

// slowStart returns seconds, 0 for none.
func (f *findings) slowStart(value string) uint32 {
	if value == "" {
		return 0
	}
	d, err := time.ParseDuration(value)
	if seconds, bad := strconv.ParseUint(value, 10, 16); bad == nil {
		d, err = time.Duration(seconds)*time.Second, nil
	}
	switch {
	case err != nil:
		f.add(annotation(AnnotationSlowStart), value, "is not a duration; what was in force stays", `write seconds, such as "30", or a duration, such as "5m"`)
	case d < 0 || d > longestSlowStart:
		f.add(annotation(AnnotationSlowStart), value, "is out of range; what was in force stays", "write 0 to 1 hour")
	default:
		return uint32((d + time.Second - 1) / time.Second)
	}
	return 0
}
