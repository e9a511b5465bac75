// Package contender brings up what is measured beside each other: nothing at all,
// Headgate, rule sets of the shape that kube-proxy writes (package rules),
// kube-proxy itself if there is one, and whatever a pair of commands brings up.
// Each has a topology of its own, so that none sees another one, with the same
// Services and servers.
//
// kube-proxy has an API server that is a few lists of JSON: see apiServer.
package contender
