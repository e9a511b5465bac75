package kube

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/headgate/headgate/pkg/source/convert"
	"github.com/headgate/headgate/pkg/source/objects"
)

// dialTimeout is how long a server that says nothing is waited for before the
// next one is asked.
const dialTimeout = 5 * time.Second

// connection is a way to the API server, whichever of them it is now.
type connection struct {
	config *rest.Config
	http   *http.Client
	scheme *runtime.Scheme
	codecs runtime.NegotiatedSerializer
	kept   *lastGood // nil for none

	servers  *serverStates
	reached  *reached
	requests Requests // nil for nobody who measures
}

// connect prepares a connection; nothing is sent yet. It reports why no server
// can be reached, and calls back when one can again.
func connect(cfg Config, report func(error), back func(), notice func(string)) (*connection, error) {
	config, err := restConfig(cfg)
	if err != nil {
		return nil, err
	}
	servers, err := parseServers(cfg.Servers)
	if err != nil {
		return nil, err
	}
	if len(servers) > 0 {
		config.Host = servers[0].String()
	}
	told := servers
	if base, _, err := rest.DefaultServerURL(config.Host, "", schema.GroupVersion{}, rest.IsConfigTransportTLS(*config)); len(servers) == 0 && err == nil {
		told = []*url.URL{base}
	}
	reached := newReached(told...)
	config.Dial = reached.dialer(&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second})
	kept, states := keptFor(cfg, config, notice), newServerStates()
	config.Wrap(func(base http.RoundTripper) http.RoundTripper {
		if cfg.Requests != nil {
			base = &measured{base: base, to: cfg.Requests}
		}
		return &failover{base: base, servers: orderFor(cfg.Node, servers), kept: kept, states: states, report: report, back: back}
	})
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("prepare a client of the API server: %w", err)
	}
	scheme := newScheme()
	return &connection{config: config, http: client, scheme: scheme, codecs: serializer.NewCodecFactory(scheme).WithoutConversion(),
		kept: kept, servers: states, reached: reached, requests: cfg.Requests}, nil
}

// keptFor returns the servers that were good before, nil where they would be of
// no use: behind a proxy that tells clusters by the path.
func keptFor(cfg Config, config *rest.Config, notice func(string)) *lastGood {
	base, _, err := rest.DefaultServerURL(config.Host, "", schema.GroupVersion{}, rest.IsConfigTransportTLS(*config))
	if err != nil || strings.Trim(base.Path, "/") != "" {
		return nil
	}
	return newLastGood(cfg.ServersFile, base.Scheme, func(err error) {
		notice("cannot keep the addresses of API servers: " + err.Error())
	})
}

// restConfig says who we are, whom we trust and how we talk.
func restConfig(cfg Config) (*rest.Config, error) {
	config, err := identity(cfg.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "headgate/" + cfg.Version
	config.QPS, config.Burst = cfg.QPS, cfg.Burst
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.WarningHandlerWithContext = rest.NoWarnings{}
	if cfg.TLSServerName != "" {
		config.ServerName = cfg.TLSServerName
	}
	return config, nil
}

// identity reads a kubeconfig, or the service account of the pod that we are.
func identity(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("use the service account of this pod: %w; outside a cluster name a kubeconfig", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", kubeconfig, err)
	}
	return config, nil
}

// newScheme knows the objects that are watched, events, and no others: a client of the
// whole API is tens of megabytes of code.
func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, k := range objects.Kinds("", convert.Options{}, true) {
		for _, gv := range []schema.GroupVersion{k.Version, k.Earlier} {
			if !gv.Empty() {
				s.AddKnownTypeWithName(gv.WithKind(k.Name), k.New())
				s.AddKnownTypeWithName(gv.WithKind(k.Name+"List"), k.List())
				metav1.AddToGroupVersion(s, gv)
			}
		}
	}
	s.AddKnownTypes(eventsv1.SchemeGroupVersion, &eventsv1.Event{})
	metav1.AddToGroupVersion(s, eventsv1.SchemeGroupVersion)
	return s
}

// host returns the host that requests are made for.
func (c *connection) host() string {
	u, err := url.Parse(c.config.Host)
	if err != nil || u.Host == "" {
		return c.config.Host
	}
	return u.Host
}

// client returns a client of one group of the API, which decodes what it is answered by
// codecs. All share one connection.
func (c *connection) client(gv schema.GroupVersion, codecs runtime.NegotiatedSerializer) (rest.Interface, error) {
	config := rest.CopyConfig(c.config)
	config.GroupVersion = &gv
	config.APIPath = "/apis"
	if gv.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = codecs
	if c.requests != nil && config.QPS >= 0 {
		// The limits that client-go takes where none are given.
		qps, burst := cmp.Or(config.QPS, rest.DefaultQPS), cmp.Or(config.Burst, rest.DefaultBurst)
		config.RateLimiter = &patient{flowcontrol.NewTokenBucketRateLimiter(qps, burst), c.host(), c.requests}
	}
	client, err := rest.RESTClientForConfigAndClient(config, c.http)
	if err != nil {
		return nil, fmt.Errorf("prepare a client of %s: %w", gv, err)
	}
	return client, nil
}
