package cli

import (
	"encoding/json"
	"slices"

	"github.com/spf13/pflag"

	"github.com/headgate/headgate/pkg/agent"
	"github.com/headgate/headgate/pkg/source/proxyconfig"
)

// notSettings are flags of the agent that configure nothing.
var notSettings = []string{"config", "cleanup", "init-only", "help", "version"}

// settings returns what is in force by the names of flags, as a file of --config may have
// it: values of kube-proxy's settings are those that they have come to.
func (o *agentOptions) settings(flags *pflag.FlagSet) map[string]any {
	out := o.InForce()
	out["kubeconfig"], out["kube-api-qps"], out["kube-api-burst"] = o.Kube.Kubeconfig, o.Kube.QPS, o.Kube.Burst
	kube := map[string]bool{}
	for _, s := range proxyconfig.Settings() {
		kube[s.Flag] = true
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if !kube[f.Name] && !slices.Contains(notSettings, f.Name) {
			out[f.Name] = setting(f)
		}
	})
	return out
}

// setting returns the value of a flag as JSON has it.
func setting(f *pflag.Flag) any {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return append([]string{}, list.GetSlice()...)
	}
	switch text := f.Value.String(); f.Value.Type() {
	case "bool", "uint32", "int":
		return json.RawMessage(text)
	default:
		return text
	}
}

// idle is flags that mean nothing beside others.
type idle struct {
	flags []string
	when  bool
	why   string
}

// withoutMeaning returns what is said of flags that mean nothing beside others, a line each.
func (o *agentOptions) withoutMeaning(changed func(flag string) bool) (all []string) {
	for _, i := range []idle{
		{[]string{"api-servers", "tls-server-name", "kubeconfig", "master", "kube-api-qps", "kube-api-burst"}, o.Manifests != "",
			"Services come from --manifests, and no API server is asked; leave out one of them"},
		{[]string{"master"}, o.Manifests == "" && changed("api-servers"), "--api-servers has precedence; leave out one of them"},
		{[]string{"pod-runtime-classes"}, o.PodDevices != agent.PodDevicesMarked, "it counts with --pod-devices marked; set that, or leave this out"},
		{[]string{"max-ejected-percent"}, o.Datapath.EjectAfter == 0, "--eject-after 0 ejects no backend; leave out one of them"},
		{[]string{"probes"}, o.Datapath.EjectAfter == 0 && o.Convert.Probes, "--eject-after 0 ejects no backend, so that none is asked; leave out one of them"},
	} {
		for _, flag := range i.flags {
			if i.when && changed(flag) {
				all = append(all, "--"+flag+" has no effect: "+i.why)
			}
		}
	}
	return all
}
