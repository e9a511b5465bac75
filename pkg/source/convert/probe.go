package convert

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/headgate/headgate/pkg/lb"
)

// usualProbeInterval is that of the kubelet.
const usualProbeInterval = 10 * time.Second

// probe returns the probe of a Service, the zero value for none. Pods have the
// kubelet to ask them: a Service with a selector gets no probe.
func (f *findings) probe(svc *corev1.Service, passive lb.Switch) (p lb.Probe) {
	value, interval := svc.Annotations[AnnotationProbe], svc.Annotations[AnnotationProbeInterval]
	switch {
	case value == "" && interval == "":
		return p
	case value == "":
		f.add(annotation(AnnotationProbeInterval), interval, "has no effect without "+AnnotationProbe+stays, "add that annotation, or leave this one out")
		return p
	case len(svc.Spec.Selector) > 0:
		f.add(annotation(AnnotationProbe), value, "is for Services without selector"+stays, "leave it out, and give the Pods a readiness probe")
		return p
	case passive == lb.SwitchOff:
		f.add(annotation(AnnotationProbe), value, "has no effect while "+AnnotationPassiveHealth+" is off"+stays, "leave out one of them")
		return p
	}
	p = f.probeOf(value)
	p.Interval = f.probeInterval(interval)
	return p
}

// probeOf reads "tcp" or "http:/path[:port]".
func (f *findings) probeOf(value string) (p lb.Probe) {
	if value == "tcp" {
		return lb.Probe{Kind: lb.TCPProbe}
	}
	const remedy = `write "tcp" or "http:/path", such as "http:/healthz", or "http:/healthz:8081" for another port`
	path, isHTTP := strings.CutPrefix(value, "http:")
	if i := strings.LastIndexByte(path, ':'); i >= 0 && isNumber(path[i+1:]) {
		port, err := strconv.ParseUint(path[i+1:], 10, 16)
		if err != nil || port == 0 {
			f.add(annotation(AnnotationProbe), value, "has no port from 1 to 65535"+stays, remedy)
			return p
		}
		path, p.Port = path[:i], uint16(port)
	}
	u, err := url.ParseRequestURI(path)
	if isHTTP && strings.ContainsAny(path, "?#") {
		f.add(annotation(AnnotationProbe), value, "has a query or a fragment"+stays, remedy)
		return lb.Probe{}
	}
	if !isHTTP || err != nil || !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || u.RequestURI() != path {
		f.add(annotation(AnnotationProbe), value, "is not a probe"+stays, remedy)
		return lb.Probe{}
	}
	p.Kind, p.Path = lb.HTTPProbe, path
	return p
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

func (f *findings) probeInterval(value string) time.Duration {
	if value == "" {
		return usualProbeInterval
	}
	return f.duration(AnnotationProbeInterval, value, time.Second, 5*time.Minute, "1 second to 5 minutes")
}
