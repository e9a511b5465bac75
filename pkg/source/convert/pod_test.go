package convert

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/headgate/headgate/pkg/lb"
)

func TestAPodSaysWhetherItsSocketsAreBalanced(t *testing.T) {
	kata := "kata"
	for _, tc := range []struct {
		name    string
		change  func(*corev1.Pod)
		want    bool
		problem string
	}{
		{"nothing said", func(*corev1.Pod) {}, false, ""},
		{"off by annotation", func(p *corev1.Pod) { p.Annotations = map[string]string{socketBalancing: "off"} }, true, ""},
		{"off by label", func(p *corev1.Pod) { p.Labels = map[string]string{socketBalancing: "off"} }, true, ""},
		{"the annotation counts", func(p *corev1.Pod) {
			p.Labels, p.Annotations = map[string]string{socketBalancing: "off"}, map[string]string{socketBalancing: "on"}
		}, false, ""},
		{"off by runtime class", func(p *corev1.Pod) { p.Spec.RuntimeClassName = &kata }, true, ""},
		{"on in spite of the runtime class", func(p *corev1.Pod) {
			p.Spec.RuntimeClassName, p.Labels = &kata, map[string]string{socketBalancing: "on"}
		}, false, ""},
		{"a word that nobody knows", func(p *corev1.Pod) { p.Annotations = map[string]string{socketBalancing: "no"} }, false,
			`Pod default/a: metadata.annotations "no": is not a value of headgate.dev/socket-balancing; write "on" or "off"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}, Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}}}}
			tc.change(p)
			got, err := Options{RuntimeClasses: []string{"gvisor", "kata"}}.Pod(p)
			want := &lb.Pod{PodName: lb.PodName{Namespace: "default", Name: "a"}, Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}, PacketsOnly: tc.want}
			if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Errorf("pod (-want +got):\n%s", diff)
			}
			var said string
			for _, p := range Problems(err) {
				said += p.Error()
			}
			if said != tc.problem {
				t.Errorf("problem %q, want %q", said, tc.problem)
			}
		})
	}
}

func TestSomePodsAreNobodysClients(t *testing.T) {
	for name, p := range map[string]*corev1.Pod{
		"with the network of the node": {Spec: corev1.PodSpec{HostNetwork: true}, Status: corev1.PodStatus{PodIP: "192.0.2.1"}},
		"that has ended":               {Status: corev1.PodStatus{PodIP: "10.0.0.1", Phase: corev1.PodSucceeded}},
		"that has failed":              {Status: corev1.PodStatus{PodIP: "10.0.0.1", Phase: corev1.PodFailed}},
		"without address":              {},
	} {
		if got, err := (Options{}).Pod(p); got != nil || err != nil {
			t.Errorf("a pod %s: %v, %v", name, got, err)
		}
	}
	got, err := Options{}.Pod(&corev1.Pod{Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.0.0.256"}}}})
	if got != nil || err == nil || !strings.Contains(err.Error(), `"10.0.0.256"`) {
		t.Errorf("an address that is none: %v, %v", got, err)
	}
}
