package main

import (
	"errors"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Tags that tests ask for: test/utils/image/manifest.go of Kubernetes.
var (
	pauseTags   = []string{"3.10.2", "3.10.1", "3.10"}
	agnhostTags = []string{"2.63.0", "2.55", "2.56", "2.59", "2.62"}
	busyboxTags = []string{"1.37.0-1", "1.36.1-1"}
)

const (
	registry   = "registry.k8s.io/"
	testImages = registry + "e2e-test-images/"
)

// tagged is a name with each of some tags.
func tagged(name string, tags []string) (names []string) {
	for _, tag := range tags {
		names = append(names, name+":"+tag)
	}
	return names
}

// imageFiles are the images, by the name of the file.
var imageFiles = map[string]func(*lab) (*image, error){
	"pause":    (*lab).pauseImage,
	"agnhost":  (*lab).agnhostImage,
	"dns":      (*lab).dnsImage,
	"busybox":  (*lab).busyboxImage,
	"coredns":  (*lab).corednsImage,
	"rst":      (*lab).resetImage,
	"iptables": (*lab).iptablesImage,
}

func (l *lab) buildImages() error {
	if runtime.GOARCH != "amd64" {
		return errors.New("images are for amd64 only")
	}
	for name, make := range imageFiles {
		path := filepath.Join(l.Cache, "images", name+".tar")
		if exists(path) {
			continue
		}
		say("build image %s", name)
		i, err := make(l)
		if err == nil {
			err = i.save(path)
		}
		if err != nil {
			return errors.Join(errors.New("build image "+name), err)
		}
	}
	return nil
}

func (l *lab) pauseImage() (*image, error) {
	i := newImage(map[string]any{"Entrypoint": []string{"/pause"}, "User": "65535:65535"}, tagged(registry+"pause", pauseTags)...)
	return i, i.file("/pause", l.bin("pause"))
}

// agnhostImage has what the Dockerfile of agnhost installs, of Debian and not
// of Alpine.
func (l *lab) agnhostImage() (*image, error) {
	i := newImage(map[string]any{"Entrypoint": []string{"/agnhost"}, "Cmd": []string{"pause"}}, tagged(testImages+"agnhost", agnhostTags)...)
	if err := l.withTools(i); err != nil {
		return nil, err
	}
	key, cert, err := selfSigned("localhost")
	if err != nil {
		return nil, err
	}
	return i, errors.Join(
		i.file("/agnhost", l.bin("agnhost")), i.link("/agnhost-2", "agnhost"),
		i.file("/coredns", l.bin("coredns")),
		i.dir("/uploads", 0o755), i.dir("/var/registry", 0o755),
		i.text("/localhost.key", 0o644, key), i.text("/localhost.crt", 0o644, cert))
}

// dnsImage stands for the image that is there for glibc's resolver, which is
// Debian's.
func (l *lab) dnsImage() (*image, error) {
	i := newImage(map[string]any{"Cmd": []string{"sh"}}, testImages+"glibc-dns-testing:2.0.0")
	return i, l.withTools(i)
}

func (l *lab) withTools(i *image) error {
	// The shell of busybox prefers its own applets to what PATH has.
	for path, name := range map[string]string{"/bin/sh": "dash", "/bin/bash": "bash", "/usr/bin/curl": "curl", "/bin/wget": "wget",
		"/bin/nc": "nc", "/bin/ss": "ss", "/usr/bin/dig": "dig", "/bin/nslookup": "nslookup", "/usr/bin/getent": "getent"} {
		if err := i.program(path, name); err != nil {
			return err
		}
	}
	// Otherwise it tries twenty times where that of busybox tries once.
	return errors.Join(i.text("/etc/wgetrc", 0o644, []byte("tries = 1\n")), i.busybox())
}

func (l *lab) busyboxImage() (*image, error) {
	i := newImage(map[string]any{"Cmd": []string{"sh"}}, tagged(testImages+"busybox", busyboxTags)...)
	return i, i.busybox()
}

func (l *lab) corednsImage() (*image, error) {
	i := newImage(map[string]any{"Entrypoint": []string{"/coredns"}}, "conformance/coredns:1")
	return i, errors.Join(i.file("/coredns", l.bin("coredns")), i.dir("/tmp", 0o1777))
}

// resetImage has the server that provokes packets in an invalid state.
func (l *lab) resetImage() (*image, error) {
	i := newImage(map[string]any{"Entrypoint": []string{"/regression-issue-74839"}}, testImages+"regression-issue-74839:1.4")
	return i, i.file("/regression-issue-74839", l.bin("regression-issue-74839"))
}

// iptablesImage stands for the one in which tests look at the packet filter.
func (l *lab) iptablesImage() (*image, error) {
	i := newImage(map[string]any{"Cmd": []string{"sh"}}, registry+"build-image/distroless-iptables:v0.9.6")
	if err := i.program("/bin/sh", "dash"); err != nil {
		return nil, err
	}
	for _, name := range []string{"iptables", "ip6tables", "iptables-save", "iptables-restore", "nft", "conntrack"} {
		if err := i.program("/usr/sbin/"+name, name); err != nil {
			return nil, err
		}
	}
	out, err := exec.Command("sh", "-c", "echo /usr/lib/*/xtables").Output()
	if err != nil {
		return nil, err
	}
	return i, errors.Join(i.tree(strings.TrimSpace(string(out))), i.busybox())
}
