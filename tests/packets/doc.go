// Package packets tries the programs of devices packet by packet, by
// BPF_PROG_TEST_RUN: bytes in, verdict, bytes out, counters.
//
// The tables tell one story each: what becomes of the packets of a flow, one
// after the other, over TCP and UDP, IPv4 and IPv6. A packet that should come
// out is built from nothing, so that every byte and checksum of what the
// programs made of the one that went in is compared.
//
// Beside them stands a model of the datapath in Go, and random packets, whole
// and mutated, that go through both while Services change:
//
//	HEADGATE_PACKETS=5000000 HEADGATE_SEED=7 go test -run Random ./tests/packets
//	go test -fuzz FuzzPackets ./tests/packets
package packets
