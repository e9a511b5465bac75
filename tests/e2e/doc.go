// Package e2e runs the agent against a real control plane: etcd, kube-apiserver
// and the controllers that make EndpointSlices (package controlplane). Pods are
// servers in network namespaces, and objects whose status the tests write: there
// is no kubelet, and nothing between a change and what it does but Kubernetes
// itself. All of it lives in namespaces of its own on loopback.
package e2e
