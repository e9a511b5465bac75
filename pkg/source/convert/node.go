package convert

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/headgate/headgate/pkg/lb"
)

// Node returns what matters of a Node. Problems reads the error.
func Node(n *corev1.Node) (*lb.Node, error) {
	f := &findings{object: "Node " + n.Name}
	f.name("metadata.name", n.Name, true)
	if err := f.err(); err != nil {
		return nil, err
	}
	return &lb.Node{Name: n.Name, Zone: n.Labels[corev1.LabelTopologyZone]}, nil
}
