package netns_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/tests/testenv"
)

const measuredService = `apiVersion: v1
kind: Service
metadata:
  name: %[1]s
  namespace: default
  annotations: {headgate.dev/algorithm: %[2]s}
spec:
  clusterIP: %[3]s
  ports: [{name: http, port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: %[1]s-1
  namespace: default
  labels: {kubernetes.io/service-name: %[1]s}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
- addresses: [10.244.0.1]
- addresses: [10.244.0.2]
`

// series returns the lines of /metrics that begin so.
func series(t *testing.T, address, begin string) (out []string) {
	t.Helper()
	var body []byte
	eventually(t, "metrics are served", func() bool {
		answer, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		body, err = io.ReadAll(answer.Body)
		return err == nil && answer.StatusCode == http.StatusOK
	})
	for line := range strings.Lines(string(body)) {
		if strings.HasPrefix(line, begin) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

func TestMetricsTellOfBackendsOneByOne(t *testing.T) {
	const address = "127.0.0.1:20249"
	mustServe(t, "10.244.0.1:8080/TCP")
	nobody(t, "10.244.0.2:8080/TCP")
	a := testenv.NewAgent(t, map[string]string{
		"least.yaml":  fmt.Sprintf(measuredService, "least", "latency", "10.96.0.1"),
		"random.yaml": fmt.Sprintf(measuredService, "random", "random", "10.96.0.2"),
	})
	a.Flags = []string{"--metrics-bind-address", address}
	a.Start()
	if got := series(t, address, "headgate_backend_in_flight{"); len(got) != 2 {
		t.Errorf("before any connection these are told of, want the two of the Service whose algorithm compares: %q", got)
	}
	const failed = `headgate_backend_consecutive_failures{backend="10.244.0.2:8080/TCP",namespace="default",port="http",service="random"} 3`
	var open []*socket
	eventually(t, "the backend that nobody serves has failed three times", func() bool {
		if s := mustSocket(t, inet, unix.SOCK_STREAM); s.connect(at("10.96.0.1:80")) == nil {
			open = append(open, s)
		}
		return len(open) >= 3 && len(series(t, address, failed)) == 1
	})
	open[0].close() // says what its handshake took
	open = open[1:]
	for _, want := range []string{
		fmt.Sprintf(`headgate_backend_in_flight{backend="10.244.0.1:8080/TCP",namespace="default",port="http",service="least"} %d`, len(open)),
		`headgate_backend_in_flight{backend="10.244.0.2:8080/TCP",namespace="default",port="http",service="least"} 0`,
		`headgate_backend_ejected{backend="10.244.0.1:8080/TCP",namespace="default",port="http",service="least"} 0`,
		`headgate_backend_ejected{backend="10.244.0.2:8080/TCP",namespace="default",port="http",service="least"} 0`, // one client alone avoids it
		`headgate_backend_consecutive_failures{backend="10.244.0.2:8080/TCP",namespace="default",port="http",service="random"} `,
		`headgate_backend_response_seconds{backend="10.244.0.1:8080/TCP",namespace="default",port="http",service="least"} `,
		`headgate_backends_omitted 0`,
	} {
		if got := series(t, address, want); len(got) != 1 {
			t.Errorf("no %s; there are %q", want, series(t, address, want[:strings.LastIndex(want, " ")]))
		}
	}
	a.Kill()
	a.Flags = append(a.Flags, "--metrics-per-backend")
	a.Start()
	if got := series(t, address, "headgate_backend_in_flight{"); len(got) != 4 {
		t.Errorf("all backends of both Services should be told of: %q", got)
	}
}
