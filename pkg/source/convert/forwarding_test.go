package convert

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/headgate/headgate/pkg/lb"
)

func TestWhichServicesAreCarriedAndWhatIsSaidOfOthers(t *testing.T) {
	external := func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"198.51.100.1"} }
	for _, tc := range []struct {
		name, asks string
		options    Options
		change     func(*corev1.Service)
		want       lb.Forwarding
		said       string
	}{
		{"asked for and allowed", "dsr", Options{DSR: true, Forwarding: lb.SNAT}, external, lb.DSR, ""},
		{"by default", "", Options{DSR: true, Forwarding: lb.DSR}, external, lb.DSR, ""},
		{"against the default", "snat", Options{DSR: true, Forwarding: lb.DSR}, external, lb.SNAT, ""},
		{"not allowed", "dsr", Options{Forwarding: lb.SNAT}, external, lb.SNAT, "switched off"},
		{"misspelt", "direct", Options{DSR: true, Forwarding: lb.SNAT}, external, lb.SNAT, "is not a way of forwarding"},
		{"an algorithm that does not hash", "dsr", Options{DSR: true}, func(s *corev1.Service) { s.Annotations[AnnotationAlgorithm] = "rr" }, lb.DSR, "hash"},
		{"policy Local", "dsr", Options{DSR: true}, func(s *corev1.Service) {
			external(s)
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}, lb.DSR, "externalTrafficPolicy Local"},
		{"NodePorts alone", "dsr", Options{DSR: true}, func(s *corev1.Service) {
			s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30080
		}, lb.DSR, "NodePorts"},
		{"SCTP", "dsr", Options{DSR: true}, func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolSCTP }, lb.DSR, "TCP and UDP"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			svc := annotated(map[string]string{})
			if tc.asks != "" {
				svc.Annotations[AnnotationForwarding] = tc.asks
			}
			tc.change(svc)
			out, err := tc.options.Service(svc)
			if out == nil || out.Forwarding != tc.want {
				t.Fatalf("Service %v with %v, want forwarding %s", out, err, tc.want)
			}
			if problems := Problems(err); tc.said == "" && len(problems) > 0 || tc.said != "" && (len(problems) != 1 || !strings.Contains(problems[0].Error(), tc.said)) {
				t.Errorf("problems %v, want one with %q", problems, tc.said)
			}
		})
	}
}
