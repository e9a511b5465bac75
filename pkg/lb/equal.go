package lb

import "slices"

// The comparisons below are written out because they run on every change, and
// reflection takes well over ten times as long. A test sets every field in turn and
// fails where one of them is left out.

// EqualServices says whether two Services, or none (nil), are the same in every
// field. It is not a method, since go-cmp would use that instead of looking.
func EqualServices(a, b *Service) bool {
	return a == b || a != nil && b != nil && a.equal(b)
}

// EqualSlices says whether two slices, or none (nil), say the same: whether they
// are equal in every field but LastChangeTrigger.
func EqualSlices(a, b *Slice) bool {
	return a == b || a != nil && b != nil && a.equal(b)
}

// equal says whether two Services are the same in every field but File.
func (s *Service) equal(o *Service) bool {
	return s.ServiceName == o.ServiceName &&
		s.Age == o.Age &&
		s.InternalPolicy == o.InternalPolicy &&
		s.ExternalPolicy == o.ExternalPolicy &&
		s.Policy == o.Policy &&
		s.KeepPolicy == o.KeepPolicy &&
		s.HealthCheckNodePort == o.HealthCheckNodePort &&
		slices.Equal(s.ClusterIPs, o.ClusterIPs) &&
		slices.Equal(s.ExternalIPs, o.ExternalIPs) &&
		slices.Equal(s.LoadBalancerIPs, o.LoadBalancerIPs) &&
		slices.Equal(s.SourceRanges, o.SourceRanges) &&
		slices.Equal(s.Ports, o.Ports) &&
		slices.Equal(s.Weights, o.Weights)
}

// equal says whether two slices are the same in every field but
// LastChangeTrigger, which every write of the slice changes.
func (s *Slice) equal(o *Slice) bool {
	return s.SliceName == o.SliceName &&
		s.Service == o.Service &&
		s.KeepWeights == o.KeepWeights &&
		slices.Equal(s.Ports, o.Ports) &&
		slices.Equal(s.Endpoints, o.Endpoints)
}

// service returns the name of the Service that the slice belongs to, and
// whether it belongs to one.
func (s *Slice) service() (ServiceName, bool) {
	return ServiceName{Namespace: s.Namespace, Name: s.Service}, s.Service != ""
}
