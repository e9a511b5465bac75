package proxyconfig

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// inapplicable returns why a field of kube-proxy does not apply, by its path or
// that of its section, where it was not read for this mode.
func inapplicable() map[string]string {
	const (
		marks   = "Headgate needs no packet mark"
		atOnce  = "changes are programmed as they come"
		windows = "applies to Windows only"
	)
	return map[string]string{
		"mode":                                "Headgate takes the place of every mode; it only says which of the sections below counts",
		"clientConnection.acceptContentTypes": "Headgate accepts protobuf and JSON",
		"logging":                             "what is logged is set with the flags --log-level and --log-format",
		"showHiddenMetricsForVersion":         "Headgate has no hidden metrics",
		"iptables.masqueradeBit":              marks,
		"iptables.masqueradeAll":              "applies in the modes iptables and ipvs only",
		"iptables.localhostNodePorts":         "applies in mode iptables only; elsewhere name localhost in nodePortAddresses",
		"iptables.syncPeriod":                 "applies in mode iptables only",
		"iptables.minSyncPeriod":              atOnce,
		"ipvs":                                "applies to IPVS only",
		"ipvs.syncPeriod":                     "applies in mode ipvs only",
		"ipvs.minSyncPeriod":                  atOnce,
		"nftables.masqueradeBit":              marks,
		"nftables.masqueradeAll":              "applies in mode nftables only",
		"nftables.syncPeriod":                 "applies in mode nftables only",
		"nftables.minSyncPeriod":              atOnce,
		"winkernel":                           windows,
		"windowsRunAsService":                 windows,
		"detectLocal.bridgeInterface":         "applies with detectLocalMode BridgeInterface only",
		"detectLocal.interfaceNamePrefix":     "applies with detectLocalMode InterfaceNamePrefix only",
		"portRange":                           "kube-proxy does not use it any more either",
	}
}

// warnings returns those of reading, and one for each field that is set and was
// not read.
func (r *reader) warnings() []lb.Problem {
	r.used["apiVersion"], r.used["kind"] = true, true
	delete(r.used, "mode") // read, but only to see what else counts
	r.warnUnused("", r.doc, inapplicable())
	slices.SortFunc(r.warned, func(a, b lb.Problem) int { return cmp.Compare(a.Field, b.Field) })
	return r.warned
}

func (r *reader) warnUnused(prefix string, fields map[string]any, why map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		path, value := prefix+name, fields[name]
		if r.used[path] {
			continue
		}
		if section, ok := value.(map[string]any); ok {
			r.warnUnused(path+".", section, why)
			continue
		}
		reason := reasonFor(path, why)
		switch {
		case reason == "":
			r.warn(path, written(value), "kube-proxy has no such field")
		case !isZero(value):
			r.warn(path, written(value), reason)
		}
	}
}

// reasonFor looks for the field, then for the sections around it.
func reasonFor(path string, why map[string]string) string {
	for {
		if reason, ok := why[path]; ok {
			return reason
		}
		end := strings.LastIndexByte(path, '.')
		if end < 0 {
			return ""
		}
		path = path[:end]
	}
}

// isZero says whether a field is as good as not written: kubeadm writes every
// field of the type, set or not.
func isZero(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case bool:
		return !v
	case json.Number:
		f, err := v.Float64()
		return err == nil && f == 0
	case string:
		d, err := time.ParseDuration(v) // "0s", and "0" of a quantity
		return v == "" || err == nil && d == 0
	case []any:
		return len(v) == 0
	default:
		return false
	}
}
