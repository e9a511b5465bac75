package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// image is a container image of one layer, put together from files of this
// machine: there is no registry to pull from.
type image struct {
	names  []string
	config map[string]any // what Docker calls Config
	layer  bytes.Buffer
	tar    *tar.Writer
	has    map[string]bool
}

func newImage(config map[string]any, names ...string) *image {
	i := &image{names: names, config: config, has: map[string]bool{}}
	config["Env"] = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	i.tar = tar.NewWriter(&i.layer)
	return i
}

// dir adds a directory and those above it.
func (i *image) dir(path string, mode int64) error {
	path = filepath.Clean(path)
	if path == "/" || path == "." || i.has[path] {
		return nil
	}
	if err := i.dir(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	i.has[path] = true
	return i.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(path, "/") + "/", Mode: mode})
}

// text adds a file.
func (i *image) text(path string, mode int64, data []byte) error {
	if i.has[path] {
		return nil
	}
	if err := i.dir(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	i.has[path] = true
	if err := i.tar.WriteHeader(&tar.Header{Name: strings.TrimPrefix(path, "/"), Mode: mode, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err := i.tar.Write(data)
	return err
}

func (i *image) link(path, target string) error {
	if i.has[path] {
		return nil
	}
	if err := i.dir(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	i.has[path] = true
	return i.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: strings.TrimPrefix(path, "/"), Linkname: target})
}

// file adds a file of this machine.
func (i *image) file(path, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return i.text(path, 0o755, data)
}

// tree adds the regular files of a directory of this machine at the same path.
func (i *image) tree(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		return i.file(path, path)
	})
}

var library = regexp.MustCompile(`/[^ )]+`)

// program adds a program of this machine with the libraries that it loads.
func (i *image) program(path, name string) error {
	from, err := exec.LookPath(name)
	if err != nil {
		return err
	}
	if from, err = filepath.EvalSymlinks(from); err != nil {
		return err
	}
	libraries, _ := exec.Command("ldd", from).Output() // fails if it is static
	for _, lib := range library.FindAllString(string(libraries), -1) {
		if err := i.file(lib, lib); err != nil {
			return err
		}
	}
	return i.file(path, from)
}

// busybox adds what scripts of tests expect of any image.
func (i *image) busybox() error {
	for path, mode := range map[string]int64{"/tmp": 0o1777, "/var/tmp": 0o1777, "/root": 0o700, "/run": 0o755, "/sbin": 0o755} {
		if err := i.dir(path, mode); err != nil {
			return err
		}
	}
	applets, err := exec.Command("/bin/busybox", "--list").Output()
	if err != nil {
		return err
	}
	if err := i.file("/bin/busybox", "/bin/busybox"); err != nil {
		return err
	}
	for _, name := range strings.Fields(string(applets)) {
		if i.has["/bin/"+name] || i.has["/usr/bin/"+name] {
			continue
		}
		if err := i.link("/bin/"+name, "/bin/busybox"); err != nil {
			return err
		}
	}
	for _, f := range [][2]string{
		{"/etc/passwd", "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"},
		{"/etc/group", "root:x:0:\nnogroup:x:65534:\n"},
		{"/etc/nsswitch.conf", "hosts: files dns\n"},
	} {
		if err := i.text(f[0], 0o644, []byte(f[1])); err != nil {
			return err
		}
	}
	return i.link("/usr/bin/env", "/bin/busybox")
}

// save writes the archive that `ctr images import` and `docker load` read.
func (i *image) save(path string) error {
	if err := i.tar.Close(); err != nil {
		return err
	}
	layer := fmt.Sprintf("%x", sha256.Sum256(i.layer.Bytes()))
	config, err := json.Marshal(map[string]any{
		"architecture": "amd64", "os": "linux", "created": "2026-01-01T00:00:00Z", "config": i.config,
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + layer}},
	})
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%x.json", sha256.Sum256(config))
	manifest, err := json.Marshal([]any{map[string]any{
		"Config": name, "RepoTags": slices.Clone(i.names), "Layers": []string{layer + "/layer.tar"}}})
	if err != nil {
		return err
	}
	var all bytes.Buffer
	w := tar.NewWriter(&all)
	for _, f := range []struct {
		name string
		data []byte
	}{{name, config}, {layer + "/layer.tar", i.layer.Bytes()}, {"manifest.json", manifest}} {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.data))}); err != nil {
			return err
		}
		if _, err := w.Write(f.data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, all.Bytes(), 0o644)
}
