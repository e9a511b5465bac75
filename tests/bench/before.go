package main

// before is what Headgate took before the flow table of its own: the figures that the aims
// were set beside, of another machine of the same kind. Keys are those of figures.
var before = map[string]float64{
	"packets/foreign_in": 8, "packets/foreign_out": 8,
	"packets/later_in/1": 145, "packets/later_out/1": 145,
	"packets/later_in/1024": 155, "packets/later_out/1024": 155,
	"packets/later_in/65536": 345, "packets/later_out/65536": 345,
	"packets/later_in/1048576": 800, "packets/later_out/1048576": 800,
	"packets/new/cached": 1300, "packets/new/half_full": 2150,
	"connect/tcp4/services=1/added": 840, "connect/tcp6/services=1/added": 728,
	"lifetime/tcp4/whole/added":     1059,
	"connect/udp4/services=1/added": 120, "connect/udp6/services=1/added": 166,
	"connect/udp4/services=30000/added": 816, "connect/udp6/services=30000/added": 839,
	"connect/udp4/services=30000/times_1_service_beside_none": 1.701, "connect/udp6/services=30000/times_1_service_beside_none": 1.521,
	"forward/headgate-1/few/times_routing": 1.49, "forward/headgate-1/many/times_routing": 1.78,
	"forward/redirect-1/few/times_routing": 1.32, "forward/redirect-1/many/times_routing": 1.56,
	"forward/headgate-1/connect_added": 4, "forward/redirect-1/connect_added": 2.9,
	"start/cold": 1070, "start/restart": 340,
	"fair/held_connections": 16384, "fair/lost_idle_connections": 1000,
}
