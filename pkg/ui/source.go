// Package ui shows a node to a browser: its Services as they stand, the connections of one of
// them, and who is avoided. It changes nothing of what is in force, and reads only what is
// looked at.
package ui

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// Source is what a node is read from. Its methods, and those of Followers, are called one at
// a time.
type Source interface {
	// Status says whether the node is well.
	Status(context.Context) (Status, error)
	// Look returns every Service port. Rates are since the Look before.
	Look(context.Context) (Look, error)
	// Follow returns what reads a Service port again and again.
	Follow(service string) Follower
	// Explain tells what becomes of a client at each frontend of a Service port, and why. Without
	// an address the client is a process on the node. The error is ErrNoService for no such
	// Service port, and a BadRequest for what is no address.
	Explain(ctx context.Context, service, from string) ([]Text, error)
}

// Follower reads a Service port.
type Follower interface {
	// Read calls each with every connection and flow, also with some that are closing. Rates are since the Read
	// before. The error is ErrNoService where the Service port is gone.
	Read(ctx context.Context, each func(Flow)) (Detail, error)
	// Client says who has an address, as of the last Read.
	Client(netip.Addr) Client
}

// ErrNoService says that there is no such Service port.
var ErrNoService = errors.New("no such Service port is in force on this node: it may have been deleted meanwhile")

// BadRequest is an error of whoever asks.
type BadRequest struct{ Err error }

// Error implements error.
func (b BadRequest) Error() string { return b.Err.Error() }

// Text is lines, each of which begins with what it is about, or with "" where it goes on.
type Text [][]string

// Status is whether a node is well.
type Status struct {
	Node     string   `json:"node"`
	Degraded []string `json:"degraded"` // why it is not well; none where it is
	Text     Text     `json:"text"`
}

// Look is what is in force at a moment.
type Look struct {
	Services []Service
	Backends int
	InFlight uint64 // of all backends
	Avoided  []Avoided
	// FailedPerSecond is connections that a backend did not take, nil where no rate is known.
	FailedPerSecond *float64
}

// Service is a Service port. Its counts begin with it; its rates are nil where none is known.
type Service struct {
	Name             string        `json:"name"` // by which it is asked for, such as default/web:http/TCP
	Namespace        string        `json:"namespace"`
	Service          string        `json:"service"`
	Port             string        `json:"port"` // such as http/TCP
	Algorithm        string        `json:"algorithm"`
	Frontends        []lb.AddrPort `json:"-"`
	Ready            *int          `json:"ready,omitempty"` // backends that are ready and not ejected, nil where no agent says it
	Backends         int           `json:"backends"`
	Avoided          int           `json:"avoided"` // backends that all clients avoid
	InFlight         uint32        `json:"inFlight"`
	InFlightShared   uint32        `json:"inFlightShared,omitempty"` // the part of it at backends that other Service ports have, too
	Connections      uint64        `json:"connections"`
	Refused          uint64        `json:"refused"`
	PerSecond        *float64      `json:"perSecond,omitempty"` // connections that begin
	RefusedPerSecond *float64      `json:"refusedPerSecond,omitempty"`
}

// ready returns how many backends are ready and not ejected, -1 where that is not known.
func (s *Service) ready() int {
	if s.Ready == nil {
		return -1
	}
	return *s.Ready
}

// Avoided is a backend that clients avoid, since it did not take connections.
type Avoided struct {
	Backend   string    `json:"backend"`
	Services  []string  `json:"services"`
	Pod       string    `json:"pod,omitempty"`
	Node      string    `json:"node,omitempty"`
	Zone      string    `json:"zone,omitempty"`
	OneClient bool      `json:"oneClient,omitempty"` // alone avoids it
	Since     time.Time `json:"since"`
}

// Detail is a Service port with its backends.
type Detail struct {
	Service
	Backends []Backend
	// Unlisted is why connections cannot be listed, "" where they are.
	Unlisted string
}

// Backend is a backend of a Service port.
type Backend struct {
	Backend     string   `json:"backend"`
	Pod         string   `json:"pod,omitempty"`
	Node        string   `json:"node,omitempty"`
	Zone        string   `json:"zone,omitempty"`
	State       string   `json:"state"`  // in Kubernetes' words
	Health      string   `json:"health"` // as this node sees it
	Well        bool     `json:"well"`   // nothing has failed
	InFlight    uint32   `json:"inFlight"`
	ResponseNs  int64    `json:"responseNs,omitempty"`
	AtLeast     bool     `json:"responseAtLeast,omitempty"`
	Connections uint64   `json:"connections"`         // of all its Service ports
	PerSecond   *float64 `json:"perSecond,omitempty"` // likewise, those that begin
}

// Flow is a connection, or a flow of datagrams, of a client with a backend.
type Flow struct {
	ID      uint64 // tells it from others as long as it lasts
	Open    bool   // nobody has closed it
	Client  netip.Addr
	Backend string
}

// Client is who asks.
type Client struct {
	Address string `json:"address,omitempty"` // "" for several, and for those that nobody has seen
	Pod     string `json:"pod,omitempty"`
	Zone    string `json:"zone,omitempty"`
	Local   bool   `json:"local,omitempty"` // the node itself
	// More is how many clients this stands for beside one.
	More int `json:"more,omitempty"`
}
