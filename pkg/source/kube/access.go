package kube

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/source/objects"
)

// answerTimeout is how long one answer of a server is waited for.
const answerTimeout = 10 * time.Second

// Right is something that an agent does at the API server.
type Right struct {
	Verb   string
	Of     schema.GroupVersionResource
	Needed bool // without it no Service is balanced
}

// String returns the right as kubectl auth can-i takes it, such as "list services".
func (r Right) String() string { return r.Verb + " " + r.Of.GroupResource().String() }

// Rights returns what an agent does at the API server. Events are in the namespace of
// what they are about, so all rights are for the whole cluster.
func Rights(cfg Config) (all []Right) {
	for _, k := range objects.Kinds(cfg.Node, cfg.Convert, cfg.Pods) {
		for _, verb := range []string{"list", "watch"} {
			all = append(all, Right{verb, k.Version.WithResource(k.Path), isNeeded(k.Name)})
		}
	}
	for _, verb := range []string{"create", "patch"} {
		all = append(all, Right{verb, eventsv1.SchemeGroupVersion.WithResource("events"), false})
	}
	return all
}

// Answer is how a server answers.
type Answer struct {
	Server  string // URL
	Version string // of Kubernetes, "" where it does not say
	Problem error  // a lb.Problem; nil where it answers
}

// Visitor asks the API server what somebody wants to know before there is an agent. It
// writes nothing, neither there nor here.
type Visitor struct {
	cfg    Config
	client rest.Interface // of the first server that answers, nil for none
}

// Visit asks each server for its version. An error is about the configuration.
func Visit(ctx context.Context, cfg Config) (*Visitor, []Answer, error) {
	cfg.ServersFile, cfg.QPS, cfg.Requests = "", -1, nil
	v, answers := &Visitor{cfg: cfg}, []Answer(nil)
	each := [][]string{nil} // the one of the kubeconfig
	if len(cfg.Servers) > 0 {
		each = slices.Collect(slices.Chunk(cfg.Servers, 1))
	}
	for _, cfg.Servers = range each {
		conn, err := connect(cfg, func(error) {}, func() {}, func(string) {})
		if err != nil {
			return nil, nil, err
		}
		client, err := conn.client(corev1.SchemeGroupVersion, conn.codecs)
		if err != nil {
			return nil, nil, err
		}
		a := v.askVersion(ctx, conn, client)
		if a.Problem == nil && v.client == nil {
			v.client = client
		}
		answers = append(answers, a)
	}
	return v, answers, nil
}

func (v *Visitor) askVersion(ctx context.Context, conn *connection, client rest.Interface) Answer {
	a := Answer{Server: conn.config.Host}
	err := errSilent
	if !isPlaceholder(a.Server) {
		a.Version, err = versionOf(ctx, client)
	}
	if err != nil && !apierrors.IsForbidden(err) { // it answers then
		p := lb.Problem{Scope: lb.ScopeNode, Object: objects.NodeKind + " " + v.cfg.Node, Field: "API server", Value: a.Server}
		p.Reason, p.Remedy = explain(a.Server, err)
		a.Problem = p
	}
	return a
}

func versionOf(ctx context.Context, client rest.Interface) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	text, err := client.Get().AbsPath("/version").DoRaw(ctx)
	var said struct {
		GitVersion string `json:"gitVersion"`
	}
	_ = json.Unmarshal(text, &said) // whatever it says, it answers
	return said.GitVersion, err
}

// Lacks returns those of the rights that the server does not grant.
func (v *Visitor) Lacks(ctx context.Context) (lacking []Right, err error) {
	for _, r := range Rights(v.cfg) {
		granted, err := v.isGranted(ctx, r)
		if err != nil {
			return lacking, err
		}
		if !granted {
			lacking = append(lacking, r)
		}
	}
	return lacking, nil
}

// isGranted asks whether the server grants a right; where that itself is not granted, it
// tries.
func (v *Visitor) isGranted(ctx context.Context, r Right) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var review struct {
		metav1.TypeMeta `json:",inline"`
		Spec            struct {
			ResourceAttributes struct {
				Verb     string `json:"verb"`
				Group    string `json:"group"`
				Resource string `json:"resource"`
			} `json:"resourceAttributes"`
		} `json:"spec"`
		Status struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	review.APIVersion, review.Kind = "authorization.k8s.io/v1", "SelfSubjectAccessReview"
	asked := &review.Spec.ResourceAttributes
	asked.Verb, asked.Group, asked.Resource = r.Verb, r.Of.Group, r.Of.Resource
	body, err := json.Marshal(review)
	if err != nil {
		return false, err
	}
	text, err := inJSON(v.client.Post()).AbsPath("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").Body(body).DoRaw(ctx)
	if apierrors.IsForbidden(err) {
		return v.try(ctx, r)
	}
	if err != nil {
		return false, err
	}
	err = json.Unmarshal(text, &review)
	return review.Status.Allowed, err
}

// try does what a right is for, as far as that changes nothing. The server asks for rights
// before it looks at what it is sent.
func (v *Visitor) try(ctx context.Context, r Right) (bool, error) {
	prefix := []string{"apis", r.Of.Group, r.Of.Version}
	if r.Of.Group == "" {
		prefix = []string{"api", r.Of.Version}
	}
	var q *rest.Request
	switch r.Verb {
	case "list":
		q = v.client.Get().AbsPath(append(prefix, r.Of.Resource)...).Param("limit", "1")
	case "watch":
		q = v.client.Get().AbsPath(append(prefix, r.Of.Resource)...).Param("watch", "1").Param("timeoutSeconds", "1")
	case "create":
		q = v.client.Post().AbsPath(append(prefix, "namespaces", nodeEvents, r.Of.Resource)...).Param("dryRun", "All").Body([]byte("{}"))
	default:
		q = v.client.Patch(types.MergePatchType).AbsPath(append(prefix, "namespaces", nodeEvents, r.Of.Resource, "headgate-check")...).Param("dryRun", "All").Body([]byte("{}"))
	}
	_, err := inJSON(q).DoRaw(ctx)
	switch {
	case apierrors.IsForbidden(err):
		return false, nil
	case err != nil && apierrors.ReasonForError(err) == "": // no answer
		return false, err
	}
	return true, nil
}

func inJSON(q *rest.Request) *rest.Request {
	return q.SetHeader("Accept", "application/json").SetHeader("Content-Type", "application/json")
}

// ClusterIP is an address of a Service.
type ClusterIP struct {
	Addr    string
	Service string // namespace/name
}

// ClusterIPs returns the addresses that the cluster has given to Services.
func (v *Visitor) ClusterIPs(ctx context.Context) (all []ClusterIP, err error) {
	var page struct {
		Metadata struct {
			Continue string `json:"continue"`
		} `json:"metadata"`
		Items []struct {
			Metadata struct {
				Namespace string `json:"namespace"`
				Name      string `json:"name"`
			} `json:"metadata"`
			Spec struct {
				ClusterIPs []string `json:"clusterIPs"`
			} `json:"spec"`
		} `json:"items"`
	}
	for {
		text, err := inJSON(v.client.Get()).AbsPath("/api/v1/services").Param("limit", "500").Param("continue", page.Metadata.Continue).DoRaw(ctx)
		if err != nil {
			return nil, err
		}
		page.Items, page.Metadata.Continue = nil, ""
		if err := json.Unmarshal(text, &page); err != nil {
			return nil, err
		}
		for _, s := range page.Items {
			for _, addr := range s.Spec.ClusterIPs {
				all = append(all, ClusterIP{addr, s.Metadata.Namespace + "/" + s.Metadata.Name})
			}
		}
		if page.Metadata.Continue == "" {
			return all, nil
		}
	}
}
