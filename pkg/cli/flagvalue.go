package cli

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/pkg/datapath"
)

// errNotTaken says that a flag does not take a value. What it takes, its Takes says.
var errNotTaken = errors.New("is not taken")

// number is a flag that takes whole numbers within bounds.
type number struct {
	to          *uint32
	least, most uint32
	zero        string // what 0 stands for if it is below the least, "" where it is not taken
	power       bool   // powers of two only
}

// within is a number with a default.
func within(to *uint32, usual, least, most uint32) *number {
	*to = usual
	return &number{to: to, least: least, most: most}
}

// orZero is a number from the least on, or else 0, which stands for something.
func orZero(to *uint32, stands string, least uint32) *number {
	n := within(to, 0, least, math.MaxUint32)
	n.zero = stands
	return n
}

// powerOfTwo is a number that is one.
func powerOfTwo(to *uint32, usual uint32) *number {
	n := within(to, usual, 1, 1<<31)
	n.power = true
	return n
}

// Set implements pflag.Value.
func (n *number) Set(s string) error {
	parsed, err := strconv.ParseUint(s, 0, 32)
	value := uint32(parsed)
	switch {
	case err != nil:
		return errNotTaken
	case value == 0 && n.zero != "":
	case value < n.least || value > n.most || n.power && value&(value-1) != 0:
		return errNotTaken
	}
	*n.to = value
	return nil
}

// String implements pflag.Value.
func (n *number) String() string { return strconv.FormatUint(uint64(*n.to), 10) }

// Type implements pflag.Value.
func (n *number) Type() string { return "uint32" }

// Takes says what the flag takes.
func (n *number) Takes() string {
	switch {
	case n.power:
		return "a power of two such as 65536"
	case n.zero != "":
		return fmt.Sprintf("a whole number from %d to %d, or 0 for %s", n.least, n.most, n.zero)
	default:
		return fmt.Sprintf("a whole number from %d to %d", n.least, n.most)
	}
}

// lasting is a flag that takes a duration which is not too short.
type lasting struct {
	to    *time.Duration
	least time.Duration
}

// atLeast is a duration with a default.
func atLeast(to *time.Duration, usual, least time.Duration) *lasting {
	*to = usual
	return &lasting{to, least}
}

// Set implements pflag.Value.
func (l *lasting) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < l.least {
		return errNotTaken
	}
	*l.to = d
	return nil
}

// String implements pflag.Value.
func (l *lasting) String() string { return l.to.String() }

// Type implements pflag.Value.
func (l *lasting) Type() string { return "duration" }

// Takes says what the flag takes.
func (l *lasting) Takes() string { return fmt.Sprintf("a duration such as 5s, at least %v", l.least) }

// choice is a flag that takes one of a few words.
type choice[T ~string] struct {
	to   *T
	of   []T
	most int // how many of them, with commas between; -1 for any number
}

// oneOf is a choice with a default.
func oneOf[T ~string](to *T, usual T, of ...T) *choice[T] {
	*to = usual
	return &choice[T]{to, of, 1}
}

// Set implements pflag.Value.
func (c *choice[T]) Set(s string) error {
	for _, w := range strings.SplitN(s, ",", c.most) {
		if !slices.Contains(c.of, T(w)) {
			return errNotTaken
		}
	}
	*c.to = T(s)
	return nil
}

// String implements pflag.Value.
func (c *choice[T]) String() string { return string(*c.to) }

// Type implements pflag.Value.
func (c *choice[T]) Type() string { return "string" }

// Takes says what the flag takes.
func (c *choice[T]) Takes() string {
	several := "one of "
	if c.most < 0 {
		several = "one or more, with commas between them, of "
	}
	return several + strings.Join(c.Words(), ", ")
}

// Words are those that the flag takes.
func (c *choice[T]) Words() []string {
	words := make([]string, len(c.of))
	for i, w := range c.of {
		words[i] = string(w)
	}
	return words
}

// ports is a flag that takes the first port and the last of a range.
type ports struct{ to *datapath.Ports }

// portsFrom is a range of ports with a default.
func portsFrom(to *datapath.Ports, usual datapath.Ports) *ports {
	*to = usual
	return &ports{to}
}

// Set implements pflag.Value.
func (p *ports) Set(s string) error {
	first, last, ok := strings.Cut(s, "-")
	a, err := strconv.ParseUint(first, 10, 16)
	b, err2 := strconv.ParseUint(last, 10, 16)
	if !ok || err != nil || err2 != nil || a == 0 || a > b {
		return errNotTaken
	}
	*p.to = datapath.Ports{First: uint16(a), Last: uint16(b)}
	return nil
}

// String implements pflag.Value.
func (p *ports) String() string { return p.to.String() }

// Type implements pflag.Value.
func (p *ports) Type() string { return "string" }

// Takes says what the flag takes.
func (p *ports) Takes() string { return "a range of ports such as 1024-65535" }
