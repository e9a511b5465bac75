package proxyconfig

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Flags are those of kube-proxy's command line. Each sets what the field of the
// file sets, and has precedence over it.
type Flags struct {
	values map[string]any // as JSON has them, by key of the setting
}

// AddTo defines the flags, but for those that do not configure anything, such as
// --config. Flags without effect are hidden from the help.
func (f *Flags) AddTo(set *pflag.FlagSet) {
	f.values = map[string]any{}
	for _, s := range Settings() {
		if s.kind == "" || s.Flag == "" {
			continue
		}
		flag := set.VarPF(&value{setting: s, into: f.values}, s.Flag, s.short, s.Does)
		flag.Hidden = s.Does == ""
		if s.kind == boolean {
			flag.NoOptDefVal = "true"
		}
	}
}

// kind is what the value of a flag is written as.
type kind string

const (
	text     kind = "string"
	boolean  kind = "bool"
	number   kind = "number"
	duration kind = "duration"
	list     kind = "strings"
)

// read returns a value as JSON has it.
func (k kind) read(s string) (any, error) {
	var err error
	switch k {
	case boolean:
		return strconv.ParseBool(s)
	case number:
		_, err = strconv.ParseFloat(s, 64)
		return json.Number(s), err
	case duration:
		_, err = time.ParseDuration(s)
	case list:
		out := []any{}
		for item := range strings.SplitSeq(s, ",") {
			if item = strings.TrimSpace(item); item != "" {
				out = append(out, item)
			}
		}
		return out, nil
	}
	return s, err
}

// value is a flag on a command line.
type value struct {
	setting Setting
	into    map[string]any
}

// Set implements pflag.Value. A list goes on where it was begun.
func (v *value) Set(s string) error {
	read, err := v.setting.kind.read(s)
	if err != nil {
		return fmt.Errorf("is no %s", v.setting.kind)
	}
	key := v.setting.key()
	if more, ok := read.([]any); ok {
		before, _ := v.into[key].([]any)
		read = append(before, more...)
	}
	v.into[key] = read
	return nil
}

// String implements pflag.Value.
func (v *value) String() string {
	if v.into == nil || v.into[v.setting.key()] == nil {
		return ""
	}
	return written(v.into[v.setting.key()])
}

// Type implements pflag.Value.
func (v *value) Type() string { return string(v.setting.kind) }
