package main

// The compiler and its flags are set once, in the Makefile (BPF2GO_…).
//go:generate go tool bpf2go -target bpfel replay ../../bpf/bench/replay.bpf.c
//go:generate go tool bpf2go -target bpfel frames ../../bpf/bench/frames.bpf.c
//go:generate go tool bpf2go -target bpfel floor ../../bpf/bench/floor.bpf.c
