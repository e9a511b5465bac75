package main

import (
	"fmt"
	"os"

	"github.com/cilium/ebpf"
)

func main() {
	spec, err := ebpf.LoadCollectionSpec(os.Args[1])
	if err != nil {
		panic(err)
	}
	for n := range spec.Programs {
		if n != "device_in" {
			delete(spec.Programs, n)
		}
	}
	o := ebpf.CollectionOptions{}
	if len(os.Args) > 2 {
		o.Programs.LogLevel = ebpf.LogLevelInstruction | ebpf.LogLevelStats
		o.Programs.LogSizeStart = 200 << 20
	}
	c, err := ebpf.NewCollectionWithOptions(spec, o)
	if err != nil {
		fmt.Printf("%+v\n", err)
		return
	}
	for n, p := range c.Programs {
		i, _ := p.Info()
		v, _ := i.VerifiedInstructions()
		j, _ := i.JitedSize()
		fmt.Println(n, v, j)
		os.WriteFile("/tmp/vlog.txt", []byte(p.VerifierLog), 0o644)
	}
}
