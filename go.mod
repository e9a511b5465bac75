module github.com/headgate/headgate

go 1.26

require (
	github.com/cilium/ebpf v0.22.0
	github.com/google/go-cmp v0.7.0
)

require golang.org/x/sys v0.43.0 // indirect

tool github.com/cilium/ebpf/cmd/bpf2go
