// Command conformance has Kubernetes' own tests judge a Service proxy: it
// starts a real cluster on this machine and runs the unmodified e2e.test
// against it, with Headgate or, as the control, kube-proxy.
//
//	conformance build             build what a cluster is made of, from the module proxy
//	conformance run [flags]       build, start a cluster, run tests, end it
//	conformance hold [flags]      start a cluster and keep it until interrupted
//	conformance enter WHERE CMD   run a command there: outside, node1, node2, …
//	conformance report            write the table of the results
//	conformance clean             remove what a killed run may have left
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if err := command(os.Args[1:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "conformance:", err)
		}
		os.Exit(1)
	}
}

// command does what the arguments ask for. Three commands are for the program
// itself, which starts itself again in namespaces.
func command(args []string) error {
	if len(args) == 0 {
		return errors.New("which command? build, run, hold, enter, report or clean")
	}
	switch name, args := args[0], args[1:]; name {
	case "inside":
		return inside(args[0])
	case "node":
		return node(args[0], args[1])
	case "into":
		return into(args[0], args[1], args[2:])
	default:
		l, rest, err := parse(name, args)
		if err != nil {
			return err
		}
		return l.command(name, rest)
	}
}

func (l *lab) command(name string, args []string) error {
	switch name {
	case "build":
		return l.build()
	case "run", "hold":
		l.Hold = name == "hold"
		return l.run()
	case "enter":
		return l.enter(args)
	case "report":
		return l.report()
	case "clean":
		return l.clean()
	}
	return fmt.Errorf("unknown command %q", name)
}

// lab is what is known of a run. The parts of it that run in namespaces of
// their own read it from a file.
type lab struct {
	Cache   string   // programs, images, results; kept
	Run     string   // everything else; removed at the end
	Repo    string   // the checkout
	Name    string   // of control groups and of Run, to tell runs apart
	Version string   // of Headgate, if it was built for the run
	Proxy   string   // what is judged, the name of one of proxies
	Overlay string   // kustomization that headgate-image applies
	Image   string   // docker archive with the image of Headgate
	Groups  []string // names of groups of tests
	Focus   string   // in place of groups
	Skip    string
	Procs   int // tests at a time
	Nodes   int
	Dual    bool // IPv4 and IPv6
	Hold    bool
	Out     string // where report writes
}

func parse(name string, args []string) (*lab, []string, error) {
	l := &lab{}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, nil, err
	}
	f := flag.NewFlagSet("conformance "+name, flag.ContinueOnError)
	f.StringVar(&l.Cache, "cache", filepath.Join(cache, "headgate-conformance"), "directory that keeps programs, images and results")
	f.StringVar(&l.Repo, "repo", ".", "the checkout of Headgate")
	f.StringVar(&l.Name, "name", "headgate-conformance", "name of this run's control groups; runs beside each other need different ones")
	f.StringVar(&l.Proxy, "proxy", "headgate", "headgate, headgate-dsr (with --forwarding dsr), headgate-image (the DaemonSet of deploy/), nftables or iptables (kube-proxy)")
	f.StringVar(&l.Image, "image", "", "docker archive of the image that headgate-image runs")
	f.StringVar(&l.Overlay, "overlay", "deploy/base", "kustomization that headgate-image applies")
	groups := f.String("groups", "services,network,loadbalancer,dual", "groups of tests, separated by commas")
	f.StringVar(&l.Focus, "focus", "", "regular expression of tests to run, in place of groups; nothing is recorded")
	f.StringVar(&l.Skip, "skip", "", "regular expression of tests to leave out of the focus")
	f.IntVar(&l.Procs, "procs", 8, "tests at a time")
	f.IntVar(&l.Nodes, "nodes", 3, "nodes, for -focus and hold")
	f.BoolVar(&l.Dual, "dual", false, "IPv4 and IPv6, for -focus and hold")
	f.StringVar(&l.Out, "out", "docs/conformance.md", "where report writes")
	if err := f.Parse(args); err != nil {
		return nil, nil, err
	}
	l.Groups = strings.Split(*groups, ",")
	for _, path := range []*string{&l.Cache, &l.Repo, &l.Image} {
		if *path != "" {
			if *path, err = filepath.Abs(*path); err != nil {
				return nil, nil, err
			}
		}
	}
	l.Run = filepath.Join(l.Cache, "runs", l.Name)
	return l, f.Args(), l.check()
}

func (l *lab) check() error {
	p, err := proxyNamed(l.Proxy)
	if err != nil {
		return err
	}
	if p.how == byImage && l.Image == "" {
		return fmt.Errorf("-proxy %s needs -image", p.name)
	}
	for _, name := range l.Groups {
		if _, err := groupNamed(name); err != nil {
			return err
		}
	}
	return nil
}

// bin is the path of a program that was built.
func (l *lab) bin(name string) string { return filepath.Join(l.Cache, "bin", name) }

// in is a path in what the run leaves behind.
func (l *lab) in(path ...string) string { return filepath.Join(append([]string{l.Run}, path...)...) }
