package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Contact is how an agent gets on with the API server.
type Contact struct {
	Age time.Duration   // since the last contact, 0 while changes are heard
	Up  map[string]bool // by URL of a server: whether it answered the last time
}

// contact collects a Contact.
type contact struct {
	read    func() Contact
	age, up *prometheus.Desc
}

// WatchContact has read called at every scrape. It is to be called once, by an
// agent that asks an API server.
func (m *Metrics) WatchContact(read func() Contact) {
	m.registry.MustRegister(&contact{
		read: read,
		age:  prometheus.NewDesc("headgate_api_contact_age_seconds", "Seconds since the last contact with the API server; 0 while its watches are open.", nil, nil),
		up:   prometheus.NewDesc("headgate_api_server_up", "1 if the API server answered the last request to it, else 0.", []string{"server"}, nil),
	})
}

// Describe is of prometheus.Collector.
func (c *contact) Describe(to chan<- *prometheus.Desc) { to <- c.age; to <- c.up }

// Collect is of prometheus.Collector.
func (c *contact) Collect(to chan<- prometheus.Metric) {
	now := c.read()
	s := sink{to}
	s.gauge(c.age, now.Age.Seconds())
	for server, up := range now.Up {
		s.gauge(c.up, truth(up), server)
	}
}
