package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/source/manifest"
)

// inFile is how many Services stand in one file.
const inFile = 100

// writeManifests writes Services as YAML, some in a file.
func writeManifests(dir string, services int) error {
	for from := 0; from < services; from += inFile {
		if err := saveFile(dir, from/inFile, services, nil); err != nil {
			return err
		}
	}
	node := "apiVersion: v1\nkind: Node\nmetadata:\n  name: node-a\n  labels: {topology.kubernetes.io/zone: zone-a}\n"
	return os.WriteFile(filepath.Join(dir, "node.yaml"), []byte(node), 0o644)
}

// saveFile writes one of the files as an editor does: beside, then in place.
// The slices given stand in it instead of the original ones.
func saveFile(dir string, file, services int, instead map[int]*lb.Slice) error {
	var text strings.Builder
	for i := file * inFile; i < min((file+1)*inFile, services); i++ {
		svc, slice := plainService(i, endpointsEach)
		if s := instead[i]; s != nil {
			slice = s
		}
		writeYAML(&text, svc, slice)
	}
	path := filepath.Join(dir, fmt.Sprintf("services-%04d.yaml", file))
	if err := os.WriteFile(path+".tmp", []byte(text.String()), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

func writeYAML(w *strings.Builder, svc *lb.Service, slice *lb.Slice) {
	fmt.Fprintf(w, `---
apiVersion: v1
kind: Service
metadata: {namespace: %s, name: %s}
spec:
  clusterIP: %s
  ports: [{name: http, port: %d, protocol: TCP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  namespace: %s
  name: %s
  labels: {kubernetes.io/service-name: %s}
addressType: IPv4
ports: [{name: http, port: %d, protocol: TCP}]
endpoints:
`, svc.Namespace, svc.Name, svc.ClusterIPs[0], svc.Ports[0].Port, slice.Namespace, slice.Name, svc.Name, slice.Ports[0].Port)
	for _, e := range slice.Endpoints {
		fmt.Fprintf(w, "  - {addresses: [%s], nodeName: %s}\n", e.Addr, e.Where.Topology().Node)
	}
}

// changeFiles measures from the save of a file on.
func (b *bench) changeFiles(t *table) (err error) {
	services := b.plan.big
	if err := b.step("read %s Services from files", count(services)); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := writeManifests(dir, services); err != nil {
		return err
	}
	g, err := b.emptyNode("files")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(b.ctx)
	source := followFiles(ctx, dir)
	defer func() { cancel(); <-source.done }()
	var n *node
	select {
	case u := <-source.first:
		n, err = b.startNode(g, u)
	case <-source.done:
		err = fmt.Errorf("read the files: %w", errors.Join(source.err, ctx.Err()))
	}
	if err != nil {
		return err
	}
	source.node = n
	close(source.started)
	err = b.save(dir, n, t)
	cancel()
	n.stop()
	if err != nil {
		return err
	}
	return b.drop(g)
}

// fileSource hands its first update over by a channel, and the others to a node
// once that is started.
type fileSource struct {
	first   chan lb.Update
	node    *node // set before started is closed
	started chan struct{}
	done    chan struct{}
	err     error // set before done is closed
}

func followFiles(ctx context.Context, dir string) *fileSource {
	s := &fileSource{first: make(chan lb.Update, 1), started: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		isFirst := true
		s.err = manifest.New(dir, "node-a").Run(ctx, func(u lb.Update) {
			if isFirst {
				isFirst = false
				s.first <- u
				return
			}
			select {
			case <-s.started:
				s.node.inbox.Update(u)
			case <-ctx.Done():
			}
		})
	}()
	return s
}

func (b *bench) save(dir string, n *node, t *table) error {
	rng := rand.New(rand.NewPCG(7, 8))
	var took []time.Duration
	var ops int
	instead := map[int]*lb.Slice{}
	n.dp.forget()
	for i := range b.plan.saves {
		service := rng.IntN(b.plan.big)
		instead[service] = changed(service, i)
		from := time.Now()
		if err := saveFile(dir, service/inFile, b.plan.big, instead); err != nil {
			return err
		}
		a, err := b.wait(n.dp)
		if err != nil {
			return err
		}
		took = append(took, a.at.Sub(from))
		ops += a.ops
		if i == b.plan.saves-1 {
			if err := isInKernel(n.group.root, changedEndpoint(i)); err != nil {
				return err
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.reportChange(t, fmt.Sprintf("from the save of a YAML file of %d Services to the maps", inFile), "file", took, ops, "–")
	return nil
}
