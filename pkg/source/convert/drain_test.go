package convert

import (
	"testing"
	"time"
)

func TestTheDrainTimeIsWhatTheAnnotationSays(t *testing.T) {
	const field = `Service default/web: metadata.annotations[headgate.dev/drain-time] `
	for _, tc := range []struct {
		value string
		want  time.Duration
		said  string
	}{
		{"30", 30 * time.Second, ""},
		{"0", 0, ""},
		{"5m", 5 * time.Minute, ""},
		{"1h30m", 90 * time.Minute, ""},
		{"24h", 24 * time.Hour, ""},
		{"86401", 0, field + `"86401": is out of range; changes of the Service's annotations wait until it is mended, and an agent that starts leaves it out; write 0 to 24 hours`},
		{"24h1ns", 0, field + `"24h1ns": is out of range; changes of the Service's annotations wait until it is mended, and an agent that starts leaves it out; write 0 to 24 hours`},
		{"-1s", 0, field + `"-1s": is out of range; changes of the Service's annotations wait until it is mended, and an agent that starts leaves it out; write 0 to 24 hours`},
		{"", 0, field[:len(field)-1] + `: is not a duration; changes of the Service's annotations wait until it is mended, and an agent that starts leaves it out; write seconds, such as "30", or a duration, such as "5m"`},
		{"soon", 0, field + `"soon": is not a duration; changes of the Service's annotations wait until it is mended, and an agent that starts leaves it out; write seconds, such as "30", or a duration, such as "5m"`},
		{"30 s", 0, field + `"30 s": is not a duration; changes of the Service's annotations wait until it is mended, and an agent that starts leaves it out; write seconds, such as "30", or a duration, such as "5m"`},
		{"99999999999", 0, field + `"99999999999": is not a duration; changes of the Service's annotations wait until it is mended, and an agent that starts leaves it out; write seconds, such as "30", or a duration, such as "5m"`},
	} {
		t.Run(tc.value, func(t *testing.T) {
			svc := service()
			svc.Annotations = map[string]string{AnnotationDrainTime: tc.value}
			out, err := Options{}.Service(svc)
			if out == nil {
				t.Fatalf("no Service: %v", err)
			}
			said := ""
			if err != nil {
				said = err.Error()
			}
			if out.DrainTime != tc.want || said != tc.said || out.KeepPolicy != (tc.said != "") {
				t.Errorf("%v, %q, keep %t; want %v, %q", out.DrainTime, said, out.KeepPolicy, tc.want, tc.said)
			}
		})
	}
}
