package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// floorText says of figures that miss their aim what the floor is, and what was tried.
type floorText struct {
	what  string
	keys  string // a pattern of figures
	floor string // {KEY} is a figure of this run
	tried string
}

// floors are told of aims that are missed, in this order.
var floors = []floorText{
	{"a packet that is not ours", `^packets/foreign_`,
		"reading both ends of the packet, two bits of filters and the list of Service prefixes: some 50 instructions, and nothing is written.",
		"Reading the whole packet first took 15 ns. Its ends alone, in registers, take half of that (`bpf/tc/sight.h`)."},
	{"a later packet, table in the cache", `^packets/later_(in|out)/(1|1024)$`,
		"no program measures it alone. Reading a packet that is not ours takes {packets/foreign_in} ns of it; hash, look-up, key, addresses, ports and checksums are the rest. Each function that is not inlined returns by a thunk (SRSO), and the 512 bytes of stack allow no more inlining.",
		"Writing the words of the key whole, so that no load waits for stores in pieces: 0 to 2 ns. The other ways of a set by a function, so that the hot one is short: nothing. Writing the packet without a call: does not fit the stack with the path that begins flows. Not tried: reading the ends once, which costs a packet of a flow some 5 ns, in a form that is as fast for packets that are not ours."},
	{"a later packet of many flows", `^packets/later_(in|out)/(65536|1048576)$`,
		"memory alone takes {floor/later/65536} ns at 65,536 flows and {floor/later/1048576} at 1,048,576 where the second line is known only by the first, {floor/later_at_once/65536} and {floor/later_at_once/1048576} where both are fetched at once; the work of a packet (a flow in the cache: {packets/later_in/1} ns) comes on top.",
		"Fetching the usual way of a flow beside the first line of its set (`bpf/flow/table.h`) took 20 to 40 ns off at 65,536 flows and 50 and more at 1,048,576. One line for a flow without tags needs tables that are half empty: two ways in a set lose 2 % of flows at half full."},
	{"a packet that a driver carries", `^packets/driver/carry/`,
		"the lines that it reads (frontend, slot, backend, peer, next hop) are in the cache, whatever the number of flows: work is all there is. A keyed hash of the flow is 7 rounds and that of the proof 6, and putting bytes before a packet, counting and redirecting are calls of the kernel, which return by thunks (SRSO).",
		"The hash without a call, and the checksum of the outer header by its fields: 130 and 135 ns where it was 126 in the same run, so neither is in. Not tried: remembering the frontend and what it names on each CPU, which took a quarter off a prototype whose frontends were in a hash table of the kernel; a hash of fewer rounds, which every node would have to have."},
	{"a packet that TC carries", `^packets/carry/`,
		"making room for an outer header of UDP with a proof takes the kernel {packets/carry/make_room} ns. The proof is a keyed hash of 6 rounds. Drivers, which have room before a packet and decide the same, take {packets/driver/carry/1024}; TC meets four functions that are not inlined, which return by thunks (SRSO), since the 512 bytes of stack allow no more inlining.",
		"Keeping the next hop of each peer for a second (to ask for it takes {packets/carry/find_hop} ns with the room), and writing header and addresses in place rather than by calls: 64 to 88 ns of 209 to 229 in the same run, at a load of 18. One function in place of two, and finding the frontend without a call: 9 to 40 of 192 to 234, at a load of 19. Not tried: bpf_skb_change_head, which moves nothing, and leaves the kernel with the place of the inner header."},
	{"a carried packet at its home", `^packets/home/.*/over_local$`,
		"to take an outer header off takes the kernel {packets/home/take_off} ns. Whom it comes from is a look-up in a hash of the kernel, both headers are read, and the proof is worked out again, by a keyed hash of 6 rounds.",
		"Reading outer and inner header in place rather than by four calls, finding the frontend of the inner packet in place rather than its address in a hash, comparing the outer destination with what the peer is known to be sent from, writing no Ethernet type that stays: 38 to 53 ns of 145 to 521 in the same run, at a load of 18. Not tried: peers in a table that is read in place, as frontends are."},
	{"a packet that a driver repeats", `^packets/driver/(foreign|first|repeat/.*)$`,
		"two lines beside each other, which one look-up finds: memory alone takes about what two lines at once do, {floor/later_at_once/65536} ns at 65,536 flows and {floor/later_at_once/1048576} at 1,048,576. The work of a packet (an entry in the cache: {packets/driver/repeat/1} ns, of which reading a packet that is not ours takes {packets/driver/foreign}) comes on top.",
		"Reading the flow table at the driver in place of entries, four lines and two look-ups: 109 ns at 1,024 flows and 535 at 65,536, where entries took 36 and 219 in the same run (docs/xdp.md). Entries of each CPU need no locks. Fetching both lines of the way that an entry gets first, before its key is compared: no difference shown, 8 ns more at 65,536 flows by two runs in both orders, at load averages of 20 to 30, so it is out."},
	{"the first packet of a flow", `^packets/new/`,
		"memory alone takes {floor/first/65536} ns for a line in each of two sets, both written, and the same work on a table in the cache takes {packets/new/cached} ns.",
		"Notes in an array beside the lines: 200 ns more. The usual way fetched early: 50 to 85 ns less, and it is in. Not tried: both directions in one set, which would save one page for backends on this node. Since these figures the datapath asks the kernel for older connections by the same port: some 340 ns more, measured beside the object before."},
	{"counting a packet", `^traffic/packet/`,
		"one more line that is read and written, in a page of its own, fetched beside those of the flow: 28 bits of packets and 36 of bytes for each way. Ways are full: of IPv6 their three addresses are 48 bytes of 64.",
		"The length of headers noted where they are read, so that counting asks for no protocol. Not tried: tags of 16 bits, so that check and protocol have room in the first line of a set, and each way has four bytes to count in, which are added to the line now and then."},
	{"counting a connection", `^traffic/[^/]*/added$`,
		"what the socket has sent and received is added to the lines of its Service port and its backend, and its connect time to a histogram: an atomic addition each.",
		"The frontend looked up where it stands, and a short loop for the bucket of the histogram: 45 and 36 ns where it was 87 and 68 at a load of 20. Not tried: leaving what was counted in the slot of the socket, for the agent to add up."},
	{"connect()", `^(connect|lifetime)/`,
		"an empty program on the same hook adds 15 to 40 ns; with many Services at random two lines of memory that no cache holds, the frontend and the backend, at some 110 ns each.",
		"Frontends of one line found in place, backends with IDs in a row (no slot is read), failures by tracepoints in place of sock_ops: a third to a half of what was before. IPv6 reads four words of an address where IPv4 reads one."},
	{"a UDP frame through a node, and connect() through it", `^forward/`,
		"a frame meets two programs. Each takes what a later packet takes, {packets/later_in/1024} ns at 1,024 flows and {packets/later_in/65536} at 65,536, of which {floor/later_at_once/65536} to {floor/later/65536} are memory; a tcx hook takes some more. A frame that is routed alone takes about 1,000 ns, so that × 1.15 leaves 75 ns for each program. The first packet of a connect() begins a flow at both devices: four directions, where {packets/new/cached} ns is for two.",
		"Redirecting saves the way through the stack, and cost a look-up of the route. What follows in a flow is repeated where it comes now (`bpf/tc/repeat.h`): one look-up, no route, and the second program lets it pass, {packets/routed_repeat/1024} ns at 1,024 flows in place of {packets/routed_in/1024} and {packets/routed_out/1024}, {packets/routed_repeat/65536} at 65,536 in place of {packets/routed_in/65536} and {packets/routed_out/65536}. It does nothing for the first packets of a connection, which are decided."},
	{"cold start", `^start/cold$`,
		"the kernel's verifier goes through 560,000 instructions of the 15 programs that every node has, 250,000 of them of the two of devices: some 650 ms of CPU time where the machine is in use, half of that where two CPUs share it. Selecting comes before, since what Services ask for says how large maps have to be; planning goes on meanwhile.",
		"Loading once, programs of L3 devices and pods when the first such device comes, a program on each CPU at a time, the kernel's types read once for all. Verifying and writing while it is planned, once it is known what Services ask for. Not tried: verifying before that, for maps of a size that is guessed."},
	{"restart", `^start/restart$`,
		"no program is loaded: what is pinned is adopted where object, constants and maps are the same. What is left is selecting and planning all Services anew, and comparing that with what the maps hold.",
		"Adopting programs and maps rather than loading anew, backends found by their IDs while tables are taken over, hash tables that hardly read another record. Not tried: a plan that is kept on disk, which would have to be proven equal to what the API server says now."},
	{"CPU of a change from an API server", `^scale/.*/(at1000/cpu|rolled/cpu_each)$`,
		"a client that receives the same changes in protobuf and drops them takes {scale/10000x10/following/cpu_each} µs of each of 1,000 a second, where the agent takes {scale/10000x10/beside/cpu_each} in the same seconds: reading, decoding, and waking a process that sleeps, of which Go's runtime has a thread of its own (sysmon) that runs as well. Of a Service of 5,000 each event is a slice of 100 endpoints, 5,000 slots to write, and lists of 5,000 to copy.",
		"Reading from the bytes only what is kept (`pkg/source/protobuf`), tables derived from the one before, lists that are edited, one telling of sockets for all losses of 30 ms. A profile has no peak any more: decoding and the loop take a quarter each, scheduling another. A heap of up to 64 MiB in use is collected half as often, what a derived table has lost is known, and slots are copied by the cache line: 2.8 ms an event of the roll where it was 3.2, at load 25 to 40. Not tried: lists of backends in pieces, of which an event would copy a few; waiting some milliseconds for more changes, which each change would take longer for."},
	{"at rest", `^scale/.*/idle$`,
		"a process that has the same streams open and does nothing takes {scale/10000x10/following/idle} %.",
		"All that looks every second does so at the same moments (`pkg/tick`); nothing is scanned where no counter has moved. Not tried: looking less often, which backends that fail and hooks that were taken away would be noticed later for."},
	{"from an API server until all is in the kernel", `^scale/.*/(ready|times_decoding)$`,
		"receiving and decoding alone, with client-go as it ships, takes {scale/10000x10/decode} ms for 10,000 × 10 and {scale/100000x5/decode} for 100,000 × 5. The verifier comes on top (cold start, above): programs are loaded when it is known how large maps have to be.",
		"A reader of the bytes that makes 6 objects of a slice in place of 190, one load of programs, hash tables in memory that agent and kernel share. Of 100,000 × 5 a quarter of the CPU time is the collector's, which follows what is kept; a quarter is decoding, a quarter selecting and planning. Services are looked at by all CPUs, programs verified and maps written while it is planned: 3.2 times what decoding takes at 100,000 × 5 where it was 5.2, and 18.1 s of CPU time where it was 21.5, at load 15 to 20. Collecting garbage half as often at first took 107 MiB more at most, and no less CPU time beside such a load. Not tried: a picture that is planned while it comes, which would put in force what a later object takes away again."},
	{"resident at rest", `^scale/.*/agent/resident$`,
		"a process that has the same streams open and keeps nothing has {scale/10000x10/following/resident} MiB.",
		"Backends in 24 bytes and without pointers, in tables by their IDs alone (80 MiB at 10,000 × 10 where it was 87); what is the same for many endpoints once; large maps are mapped only while they are read; memory is returned at rest. Some 20 MiB are pages of the program's file, which the kernel takes back where it needs them."},
	{"Services that are replaced", `^scale/.*/replaced$`,
		"2,000 Services and 2,000 slices are received, decoded, planned and written, and where maps have no room for both at once, one grace period passes between.",
		"Those that go last, one grace period for all, changes encoded before they are told: before that the figure had the server's encoding in it. What Services ask for is worked out once, and garbage collected half as often: 0.15 ms of CPU time each where it was 0.32, at load 25 to 40. Each Service is planned twice, since its slices come by another stream: not tried is to wait for these."},
	{"idle connections", `^fair/`, "0.", "A connection is lost only by a first guess of both sequence numbers that is right, one in 65,536: a wrong one takes the proof from all that follow."},
}

func (f floorText) answers(key string) bool { return regexp.MustCompile(f.keys).MatchString(key) }

// figureIn is a figure that a text names.
var figureIn = regexp.MustCompile(`\{([^}]+)\}`)

// inText prints a figure with as many digits as say something.
func inText(v float64) string {
	if v < 10 {
		return fmt.Sprintf("%.2g", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// withFigures returns a text with the figures that it names.
func (r *report) withFigures(text string) string {
	return figureIn.ReplaceAllStringFunc(text, func(name string) string {
		if v, ok := r.Figures[name[1:len(name)-1]]; ok {
			return inText(v.Median)
		}
		return "–"
	})
}

// writeFloors answers the aims that are missed.
func (r *report) writeFloors(b *strings.Builder) {
	title := "\n## Floors\n\nOf each of these aims that is missed: what memory or the kernel takes in any case, and what was tried.\n\n"
	for _, f := range floors {
		if !slices.ContainsFunc(r.missed, f.answers) {
			continue
		}
		fmt.Fprintf(b, "%s- **%s.** Floor: %s Tried: %s\n", title, f.what, r.withFigures(f.floor), r.withFigures(f.tried))
		title = ""
	}
}
