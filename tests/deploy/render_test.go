// Package deploy_test renders what deploy/ has, with the libraries that helm
// and kubectl are made of, and reads it as the API server would. It is a module
// of its own: the product depends on neither.
package deploy_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	sigsyaml "sigs.k8s.io/yaml"
)

// root is the repository, seen from this package.
const root = "../.."

// chart and base are the two ways to install the same.
const (
	chart = root + "/deploy/helm/headgate"
	base  = root + "/deploy/base"
)

// strict refuses fields that no type has.
var strict = serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()

// objects are those of a rendering, by kind and name.
type objects map[string]runtime.Object

// build is what `kubectl kustomize` makes of a directory.
func build(dir string) ([]byte, error) {
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, err
	}
	return made.AsYaml()
}

// render is what `helm template --namespace kube-system` makes of the chart with
// values in YAML, and the notes.
func render(values string) (manifests []byte, notes string, err error) {
	return renderIn(cluster{}, values)
}

// renderIn is what `helm upgrade` makes of the chart in a cluster.
func renderIn(c cluster, values string) (manifests []byte, notes string, err error) {
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		return nil, "", err
	}
	loaded, err := loader.Load(chart)
	if err != nil {
		return nil, "", err
	}
	release := chartutil.ReleaseOptions{Name: "headgate", Namespace: "kube-system", IsInstall: true, Revision: 1}
	all, err := chartutil.ToRenderValues(loaded, given, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, "", err
	}
	files, err := engine.RenderWithClientProvider(loaded, all, c)
	if err != nil {
		return nil, "", err
	}
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, "NOTES.txt") {
			notes = files[name]
			continue
		}
		out.WriteString("---\n" + files[name] + "\n")
	}
	return out.Bytes(), notes, nil
}

// mustBuild reads what kustomize makes of a directory.
func mustBuild(tb testing.TB, dir string) objects {
	tb.Helper()
	text, err := build(dir)
	if err != nil {
		tb.Fatalf("build %s: %v", dir, err)
	}
	return mustRead(tb, text)
}

// mustRender reads what helm makes of the chart with values.
func mustRender(tb testing.TB, values string) objects {
	tb.Helper()
	text, _, err := render(values)
	if err != nil {
		tb.Fatalf("render: %v", err)
	}
	return mustRead(tb, text)
}

// mustRead decodes documents of YAML strictly. What Kubernetes itself has no
// type for stays as it is.
func mustRead(tb testing.TB, text []byte) objects {
	tb.Helper()
	out := objects{}
	for documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			tb.Fatal(err)
		}
		u := unstructured.Unstructured{}
		if err := sigsyaml.UnmarshalStrict(document, &u.Object); err != nil {
			tb.Fatalf("%v in\n%s", err, document)
		}
		if len(u.Object) == 0 {
			continue
		}
		object, _, err := strict.Decode(document, nil, nil)
		if runtime.IsNotRegisteredError(err) {
			object, err = &u, nil
		}
		if err != nil {
			tb.Fatalf("%v in\n%s", err, document)
		}
		key := u.GetKind() + "/" + u.GetName()
		if out[key] != nil {
			tb.Fatalf("%s is there twice", key)
		}
		out[key] = object
	}
}

// mustGet returns the one object of a type.
func mustGet[T runtime.Object](tb testing.TB, from objects) T {
	tb.Helper()
	var found []T
	for _, o := range from {
		if o, ok := o.(T); ok {
			found = append(found, o)
		}
	}
	if len(found) != 1 {
		tb.Fatalf("%d of %T, want one", len(found), *new(T))
	}
	return found[0]
}
