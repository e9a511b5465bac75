package agent

import (
	"context"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/metrics"
	"github.com/headgate/headgate/pkg/source/kube"
	"github.com/headgate/headgate/pkg/tick"
)

// contactEvery is how often it is looked whether there is contact with the API
// server.
const contactEvery = time.Second

// Contact is what the report says of the API server.
type Contact struct {
	Server string    `json:"server,omitempty"` // URL of the one that answered last
	Lost   time.Time `json:"lost,omitzero"`    // since when there is no contact
	Synced bool      `json:"synced"`           // all Services were received once
}

// contact is what was said of the API server.
type contact struct {
	status *statusServer
	health func() kube.Health
	logged map[string]bool // problems that were logged since contact was lost
	report Contact
}

// watchContact tells of contact with the API server that is lost and that comes
// back, until the context ends.
func (a *statusServer) watchContact(ctx context.Context, health func() kube.Health) {
	c := &contact{status: a, health: health, logged: map[string]bool{}}
	a.metrics.WatchContact(c.measure)
	look := time.NewTimer(tick.Next(contactEvery))
	defer look.Stop()
	for {
		c.look(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			look.Reset(tick.Next(contactEvery))
		}
	}
}

func (c *contact) measure() metrics.Contact {
	h := c.health()
	m := metrics.Contact{Up: map[string]bool{}}
	if h.Cause != nil || h.LastContact.IsZero() {
		m.Age = h.Age(time.Now())
	}
	for server, err := range h.Servers {
		m.Up[server] = err == nil
	}
	return m
}

// look tells what is new.
func (c *contact) look(now time.Time) {
	h := c.health()
	problems := h.Problems(c.status.cfg.NodeName, now)
	c.log(h, problems, now)
	report := Contact{Server: h.Server, Synced: h.Synced}
	if len(problems) > 0 {
		report.Lost = now.Add(-h.Age(now))
	}
	c.report = report
	c.status.problems.setContact(report, problems)
	c.status.proxy.SetContact(c.reason(h, problems))
}

// log says each problem once for as long as contact is lost, and that it is back.
func (c *contact) log(h kube.Health, problems []lb.Problem, now time.Time) {
	log := c.status.log
	for _, p := range problems {
		if text := p.Error(); !c.logged[text] {
			c.logged[text] = true
			log.Warn("no contact with the API server", zap.Duration("since", h.Age(now).Round(time.Second)), zap.String("problem", text))
		}
	}
	if len(problems) == 0 && len(c.logged) > 0 {
		clear(c.logged)
		log.Info("contact with the API server", zap.String("server", h.Server), zap.Duration("after", now.Sub(c.report.Lost).Round(time.Second)))
	}
}

// reason is what /healthz says of it.
func (c *contact) reason(h kube.Health, problems []lb.Problem) string {
	var lines []string
	for _, p := range problems {
		lines = append(lines, p.Error())
	}
	if len(lines) == 0 && !h.Synced {
		return "waits for the API server to list Services"
	}
	return strings.Join(lines, "; ")
}
