// Package raw sends packets that no socket would: SYNs from a whole network,
// fragments without the rest of their datagram, and datagrams at more than a
// million a second. It is for drills and for finding limits, in network
// namespaces made for it: it takes the path of a namespace and sends nowhere
// else.
//
// Two ways lead to the device. A ring shared with the kernel (packet(7),
// PACKET_TX_RING) works on every device. Live frames (BPF_PROG_TEST_RUN with
// BPF_F_TEST_XDP_LIVE_FRAMES, Linux 5.18) make the packets in the kernel, by a
// program of a few instructions, and need a device that sends XDP frames: of a
// veth pair the other end must have GRO on, see [EnableGRO], or a program.
package raw
