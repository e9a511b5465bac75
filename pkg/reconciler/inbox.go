package reconciler

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// Inbox is what sources have handed over and a reconciler has not taken yet. It is made
// first: on a start, receiving everything takes about as long as loading programs does.
// Nothing but Judge and what asks waits.
type Inbox struct {
	queued    func(time.Time) // is told of each update
	wake      chan struct{}   // has an element while there is news
	verdicts  chan verdict
	questions chan question

	mu   sync.Mutex
	news news
}

// news is what has come since it was taken last.
type news struct {
	updates   []lb.Update                     // in order
	addresses map[netip.Addr]plan.AddressKind // newest, nil if none came
	devices   []plan.Device                   // newest, nil if none came
	peers     *peers                          // newest, nil if none came
}

// NewInbox returns an empty inbox. When an update comes it calls queued, which may be nil.
func NewInbox(queued func(now time.Time)) *Inbox {
	return &Inbox{queued: queued, wake: make(chan struct{}, 1), verdicts: make(chan verdict), questions: make(chan question)}
}

// Update hands over a batch of changes.
func (i *Inbox) Update(u lb.Update) {
	if i.queued != nil {
		i.queued(time.Now())
	}
	i.change(func(n *news) { n.updates = append(n.updates, u) })
}

// SetNodeAddresses says which addresses are the node's own, also those on which NodePorts do
// not answer.
func (i *Inbox) SetNodeAddresses(addresses map[netip.Addr]plan.AddressKind) {
	i.change(func(n *news) { n.addresses = addresses })
}

// SetDevices says on which devices others reach the node.
func (i *Inbox) SetDevices(devices []plan.Device) {
	i.change(func(n *news) { n.devices = append([]plan.Device{}, devices...) })
}

// SetPeers says which nodes carry, by name, and which of them is this one.
func (i *Inbox) SetPeers(here string, all map[string]plan.Node) {
	i.change(func(n *news) { n.peers = &peers{here, all} })
}

// peers are the nodes that carry.
type peers struct {
	here string
	all  map[string]plan.Node
}

// Judge ejects a backend, which gets no retry for so long, or makes it one like all
// others. It waits until a reconciler has taken it, or the context ends.
func (i *Inbox) Judge(ctx context.Context, backend lb.AddrPort, eject bool, noRetryFor time.Duration) {
	select {
	case i.verdicts <- verdict{backend, eject, noRetryFor}:
	case <-ctx.Done():
	}
}

// change alters the news, alone, and wakes the reconciler.
func (i *Inbox) change(alter func(*news)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	alter(&i.news)
	select {
	case i.wake <- struct{}{}:
	default: // awake already
	}
}

// take returns the news, which is none then: nobody is woken for it again.
func (i *Inbox) take() news {
	i.mu.Lock()
	defer i.mu.Unlock()
	select {
	case <-i.wake:
	default:
	}
	n := i.news
	i.news = news{}
	return n
}
