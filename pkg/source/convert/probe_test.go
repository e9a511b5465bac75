package convert

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

func TestAnnotationsSayHowBackendsAreProbed(t *testing.T) {
	for _, tc := range []struct {
		probe, interval string
		want            lb.Probe
	}{
		{"", "", lb.Probe{}},
		{"tcp", "", lb.Probe{Kind: lb.TCPProbe, Interval: 10 * time.Second}},
		{"tcp", "3", lb.Probe{Kind: lb.TCPProbe, Interval: 3 * time.Second}},
		{"http:/", "5m", lb.Probe{Kind: lb.HTTPProbe, Path: "/", Interval: 5 * time.Minute}},
		{"http:/healthz/full", "1s", lb.Probe{Kind: lb.HTTPProbe, Path: "/healthz/full", Interval: time.Second}},
		{"http:/healthz:8081", "90s", lb.Probe{Kind: lb.HTTPProbe, Path: "/healthz", Port: 8081, Interval: 90 * time.Second}},
		{"http:/a:b", "", lb.Probe{Kind: lb.HTTPProbe, Path: "/a:b", Interval: 10 * time.Second}},
	} {
		svc, err := Service(annotated(map[string]string{AnnotationProbe: tc.probe, AnnotationProbeInterval: tc.interval}))
		if err != nil || svc.Probe != tc.want {
			t.Errorf("%q every %q: %+v, %v; want %+v", tc.probe, tc.interval, svc.Probe, err, tc.want)
		}
	}
}

func TestABadProbeIsReportedAndTheFormerOneStays(t *testing.T) {
	for _, tc := range []struct {
		annotations map[string]string
		selector    map[string]string
		says        string
	}{
		{map[string]string{AnnotationProbe: "udp"}, nil, "is not a probe"},
		{map[string]string{AnnotationProbe: "http"}, nil, "is not a probe"},
		{map[string]string{AnnotationProbe: "http:"}, nil, "is not a probe"},
		{map[string]string{AnnotationProbe: "http:healthz"}, nil, "is not a probe"},
		{map[string]string{AnnotationProbe: "http://10.0.0.1/healthz"}, nil, "is not a probe"},
		{map[string]string{AnnotationProbe: "http:/a b"}, nil, "is not a probe"},
		{map[string]string{AnnotationProbe: "http:/delete?id=1"}, nil, "has a query"},
		{map[string]string{AnnotationProbe: "http:/delete#id"}, nil, "has a query"},
		{map[string]string{AnnotationProbe: "http:/delete?id=1:8081"}, nil, "has a query"},
		{map[string]string{AnnotationProbe: "http:/healthz:0"}, nil, "port"},
		{map[string]string{AnnotationProbe: "http:/healthz:65536"}, nil, "port"},
		{map[string]string{AnnotationProbe: "tcp", AnnotationProbeInterval: "often"}, nil, "not a duration"},
		{map[string]string{AnnotationProbe: "tcp", AnnotationProbeInterval: "0"}, nil, "out of range"},
		{map[string]string{AnnotationProbe: "tcp", AnnotationProbeInterval: "-5s"}, nil, "out of range"},
		{map[string]string{AnnotationProbe: "tcp", AnnotationProbeInterval: "6m"}, nil, "out of range"},
		{map[string]string{AnnotationProbeInterval: "5s"}, nil, "no effect without headgate.dev/probe"},
		{map[string]string{AnnotationProbe: "tcp"}, map[string]string{"app": "web"}, "without selector"},
		{map[string]string{AnnotationProbe: "tcp", AnnotationPassiveHealth: "off"}, nil, "passive-health"},
	} {
		in := annotated(tc.annotations)
		in.Spec.Selector = tc.selector
		svc, err := Service(in)
		problems := Problems(err)
		if svc == nil || !svc.KeepPolicy || len(problems) != 1 {
			t.Errorf("%v: Service %v with problems %v, want it to keep what was in force, and one problem", tc.annotations, svc, problems)
			continue
		}
		if svc.Probe != (lb.Probe{}) {
			t.Errorf("%v: %+v, want no probe", tc.annotations, svc.Probe)
		}
		p := problems[0]
		if p.Object != "Service default/web" || !strings.Contains(p.Field, "headgate.dev/probe") || !strings.Contains(p.Reason, tc.says) || p.Remedy == "" {
			t.Errorf("%v: %v, want %q with object, field and remedy", tc.annotations, p, tc.says)
		}
	}
}

// Problems are counted beyond those that are told.
func TestABadProbeIsLeftOutAfterManyProblems(t *testing.T) {
	svc, _ := Service(annotated(map[string]string{
		AnnotationWeights: strings.Repeat("web=1,", lb.MostProblems), AnnotationProbe: "tcp", AnnotationProbeInterval: "often",
	}))
	if svc.Probe != (lb.Probe{}) {
		t.Errorf("%+v, want no probe", svc.Probe)
	}
}

func TestProbesAreOffUnlessTheOperatorAllowsThem(t *testing.T) {
	in := annotated(map[string]string{AnnotationProbe: "tcp", AnnotationAlgorithm: "lc"})
	svc, err := Options{}.Service(in)
	problems := Problems(err)
	if len(problems) != 1 || !strings.Contains(problems[0].Error(), "switched off") || !strings.Contains(problems[0].Remedy, "--probes") {
		t.Errorf("problems %v, want one that says so", problems)
	}
	if svc.KeepPolicy || svc.Probe != (lb.Probe{}) || svc.Algorithm != lb.LC {
		t.Errorf("%+v, want everything but the probe", svc.Policy)
	}
	svc, err = Options{Probes: true}.Service(in)
	if err != nil || svc.Probe.Kind != lb.TCPProbe {
		t.Errorf("allowed: %+v, %v", svc.Policy, err)
	}
}
