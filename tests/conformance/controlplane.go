package main

import (
	"fmt"
	"time"
)

// controlPlane starts what a cluster has one of.
func (l *lab) controlPlane() ([]*process, error) {
	if err := l.identities(); err != nil {
		return nil, err
	}
	etcd, err := l.start("etcd", l.bin("etcd"), "--data-dir", l.in("etcd"), "--unsafe-no-fsync", "--log-level", "warn",
		"--quota-backend-bytes", "4294967296")
	if err != nil {
		return nil, err
	}
	api, err := l.start("kube-apiserver", l.apiServer()...)
	if err != nil {
		return nil, err
	}
	running := []*process{etcd, api}
	if err := eventually("the API server is ready", 3*time.Minute, running, func() error {
		return l.kubectl("", "get", "--raw", "/readyz")
	}); err != nil {
		return nil, err
	}
	for name, flags := range map[string][]string{"kube-controller-manager": l.controllers(), "kube-scheduler": nil} {
		conf := l.in(name + ".kubeconfig")
		argv := append([]string{l.bin(name), "--kubeconfig", conf, "--authentication-kubeconfig", conf, "--authorization-kubeconfig", conf,
			"--bind-address", "127.0.0.1", "--leader-elect=false"}, flags...)
		p, err := l.start(name, argv...)
		if err != nil {
			return nil, err
		}
		running = append(running, p)
	}
	return running, eventually("the controllers work", 3*time.Minute, running, func() error {
		return l.kubectl("", "-n", "default", "get", "serviceaccount", "default")
	})
}

// identities writes the certificates, and who is who to the API server.
func (l *lab) identities() error {
	ca, err := l.newAuthority("ca")
	if err != nil {
		return err
	}
	front, err := l.newAuthority("front-proxy-ca")
	if err != nil {
		return err
	}
	if err := front.issue("front-proxy-client", "front-proxy-client", ""); err != nil {
		return err
	}
	if err := ca.issue("apiserver", "kube-apiserver", "", "127.0.0.1", outsideIP, "10.96.0.1", "localhost",
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"); err != nil {
		return err
	}
	if err := ca.issue("apiserver-kubelet-client", "kube-apiserver-kubelet-client", "system:masters"); err != nil {
		return err
	}
	users := map[string][2]string{
		"admin":                   {"admin", "system:masters"},
		"kube-controller-manager": {"system:kube-controller-manager", ""},
		"kube-scheduler":          {"system:kube-scheduler", ""},
		"kube-proxy":              {"system:kube-proxy", ""},
		// The account of deploy/, which pods prove with tokens.
		"headgate": {"system:serviceaccount:kube-system:headgate", ""},
	}
	for name, u := range users {
		if err := l.identity(ca, name, u[0], u[1]); err != nil {
			return err
		}
	}
	for n := 1; n <= l.Nodes; n++ {
		if err := l.identity(ca, nodeName(n), "system:node:"+nodeName(n), "system:nodes", nodeName(n), nodeIP(n)); err != nil {
			return err
		}
	}
	return l.serviceAccountKeys()
}

func (l *lab) identity(ca *authority, name, user, group string, hosts ...string) error {
	if err := ca.issue(name, user, group, hosts...); err != nil {
		return err
	}
	return l.kubeconfig(name)
}

func (l *lab) apiServer() []string {
	issuer := "https://kubernetes.default.svc.cluster.local"
	return []string{l.bin("kube-apiserver"), "--etcd-servers", "http://127.0.0.1:2379",
		"--advertise-address", outsideIP, "--secure-port", "6443",
		"--service-cluster-ip-range", l.serviceCIDRs(),
		"--tls-cert-file", l.pki("apiserver.crt"), "--tls-private-key-file", l.pki("apiserver.key"),
		"--client-ca-file", l.pki("ca.crt"),
		"--kubelet-client-certificate", l.pki("apiserver-kubelet-client.crt"), "--kubelet-client-key", l.pki("apiserver-kubelet-client.key"),
		"--kubelet-preferred-address-types", "InternalIP",
		"--requestheader-client-ca-file", l.pki("front-proxy-ca.crt"), "--requestheader-allowed-names", "front-proxy-client",
		"--requestheader-extra-headers-prefix", "X-Remote-Extra-", "--requestheader-group-headers", "X-Remote-Group",
		"--requestheader-username-headers", "X-Remote-User",
		"--proxy-client-cert-file", l.pki("front-proxy-client.crt"), "--proxy-client-key-file", l.pki("front-proxy-client.key"),
		"--service-account-issuer", issuer, "--service-account-key-file", l.pki("tokens.pub"), "--service-account-signing-key-file", l.pki("tokens.key"),
		"--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction", "--allow-privileged"}
}

func (l *lab) controllers() []string {
	return []string{"--use-service-account-credentials",
		"--service-account-private-key-file", l.pki("tokens.key"), "--root-ca-file", l.pki("ca.crt"),
		"--cluster-signing-cert-file", l.pki("ca.crt"), "--cluster-signing-key-file", l.pki("ca.key"),
		"--requestheader-client-ca-file", l.pki("front-proxy-ca.crt"), "--client-ca-file", l.pki("ca.crt"),
		"--cluster-cidr", l.podCIDRs(), "--service-cluster-ip-range", l.serviceCIDRs(), "--allocate-node-cidrs=false",
		// A machine under load is late with its heartbeats.
		fmt.Sprintf("--node-monitor-grace-period=%s", 50*time.Second)}
}
