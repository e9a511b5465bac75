// Package load sends traffic and measures what comes of it.
//
// In an open loop, operations are due at times that nothing but the rate
// decides, and latency counts from the time at which an operation was due: a
// server that stalls is late for all that were due meanwhile, whether or not
// they could be sent (no coordinated omission). In a closed loop each
// connection begins the next operation when it has finished one.
//
// Each sender is a thread, by default one for each CPU and bound to it, with
// connections, an arrival process and a record of its own; the records are
// merged when the run is over. Load runs in the network namespace and the cgroup
// of its process: [Client] runs it in another process.
//
// Every run ends: after the measured time, operations that were due wait for a
// connection for one timeout at most, and those under way for their own.
package load
