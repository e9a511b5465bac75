// Package result is what a measurement leaves behind: the types of the JSON
// that `headgate-bench` writes and reads, and the statistics on them.
//
// A [Report] is one command: where and when it ran ([Meta]) and its [Run]s. A
// run is one load on one way, say "open loop, 2,000 connects a second, through
// Headgate, round 3"; what tells runs apart are its labels.
//
// Units stand in the names of the JSON fields: _ns are nanoseconds, _bytes are
// bytes, _per_second are events per second. Times of a run are offsets from
// the moment at which counting began, after the warm-up.
package result
