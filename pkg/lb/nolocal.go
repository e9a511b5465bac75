package lb

// NoLocal counts the Service ports of one family that have usable endpoints,
// but none on this node where the internal or external traffic policy is Local.
type NoLocal struct {
	Internal int
	External int
}

// CountNoLocal counts those among the frontends of a Service, by family.
func CountNoLocal(frontends []Frontend) map[Family]NoLocal {
	type port struct {
		family   Family
		name     string
		protocol Protocol
	}
	internal, external := map[port]bool{}, map[port]bool{}
	for _, f := range frontends {
		p := port{FamilyOf(f.Addr), f.Port, f.Protocol}
		if f.Kind == ClusterIP && f.Views[Internal].NoLocal {
			internal[p] = true
		}
		if f.Kind != ClusterIP && f.Views[External].NoLocal {
			external[p] = true
		}
	}
	out := map[Family]NoLocal{}
	for p := range internal {
		n := out[p.family]
		n.Internal++
		out[p.family] = n
	}
	for p := range external {
		n := out[p.family]
		n.External++
		out[p.family] = n
	}
	return out
}
