package datapath

// The compiler and its flags are set once, in the Makefile (BPF2GO_…).
//go:generate go tool bpf2go -target bpfel -type table -type promise -type view -type algorithm -type flow_flag -type frontend_flag -type address_kind -type drop_reason -type service_cidr -type device_flag -type named_socket headgate ../../bpf/headgate.bpf.c
