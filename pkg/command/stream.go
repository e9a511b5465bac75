package command

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v2"

	"github.com/headgate/headgate/pkg/lb"
)

// Stream is a list that may be long: what is printed of one is let go before the next one comes.
type Stream struct {
	Kind string // of each
	// Each calls do with one after the other, until it returns an error. It is gone through once.
	Each func(do func(one any) error) error
	// Rows calls do with the rows of one for people, none of which outlives its turn.
	Rows func(one any, do func(row []string))
	Name func(one any) string // its kind/name
}

// printStream writes a list in the form that was asked for. Of one that cannot be read nothing is written,
// unless it is longer than the buffer.
func (o Output) printStream(to io.Writer, header []string, s *Stream) error {
	out := bufio.NewWriterSize(to, 1<<16)
	var err error
	switch w := Printable(out); {
	case o.WantsNames():
		err = s.printNames(out)
	case o.format == formatYAML:
		err = s.printYAML(w)
	case strings.HasPrefix(string(o.format), formatJSONPath):
		err = s.printPath(w, strings.TrimPrefix(string(o.format), formatJSONPath))
	case o.ForPrograms():
		err = s.printJSON(w, o.isIndented())
	default:
		err = s.printRows(out, header)
	}
	if err != nil {
		return err
	}
	return out.Flush()
}

func (s *Stream) printNames(out io.Writer) error {
	return s.Each(func(one any) error {
		_, err := fmt.Fprintln(out, lb.Printable(s.Name(one)))
		return err
	})
}

// printRows writes rows once it is known how wide columns are.
func (s *Stream) printRows(out io.Writer, header []string) error {
	var all kept
	all.add(header)
	err := s.Each(func(one any) error {
		s.Rows(one, all.add)
		return nil
	})
	if err != nil {
		return err
	}
	return all.write(out)
}

// frame is what stands around and between the items of a List in JSON.
type frame struct{ begin, first, next, last, end string }

var (
	framed   = frame{begin: `{"apiVersion":%q,"kind":%q,"items":[`, next: ",", end: "]}\n"}
	indented = frame{"{\n  \"apiVersion\": %q,\n  \"kind\": %q,\n  \"items\": [", "\n    ", ",\n    ", "\n  ", "]\n}\n"}
)

// printJSON writes what printValue would of a List.
func (s *Stream) printJSON(out io.Writer, indent bool) error {
	var text bytes.Buffer
	encoder, f := json.NewEncoder(&text), framed
	encoder.SetEscapeHTML(false)
	if indent {
		f = indented
		encoder.SetIndent("    ", "  ")
	}
	if _, err := fmt.Fprintf(out, f.begin, APIVersion, s.Kind+"List"); err != nil {
		return err
	}
	between, last := f.first, ""
	err := s.Each(func(one any) error {
		text.Reset()
		text.WriteString(between)
		between, last = f.next, f.last
		if err := encoder.Encode(one); err != nil {
			return err
		}
		_, err := out.Write(bytes.TrimSuffix(text.Bytes(), []byte("\n")))
		return err
	})
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, last+f.end)
	return err
}

// yamlAtOnce is how many are made YAML at a time, which takes buffers of its own.
const yamlAtOnce = 100

// printYAML writes what printValue would of a List. Its keys are sorted, so that items come second.
func (s *Stream) printYAML(out io.Writer) error {
	if _, err := fmt.Fprintf(out, "apiVersion: %s\nitems:", APIVersion); err != nil {
		return err
	}
	between, some := "\n", make([]any, 0, yamlAtOnce)
	write := func() error {
		text, err := yaml.Marshal(some)
		if err == nil {
			_, err = io.WriteString(out, between+string(text))
		}
		between, some = "", some[:0]
		return err
	}
	err := s.eachPlain(func(plain any) error {
		if some = append(some, plain); len(some) < yamlAtOnce {
			return nil
		}
		return write()
	})
	if err == nil && len(some) > 0 {
		err = write()
	}
	if err == nil && between != "" {
		_, err = io.WriteString(out, " []\n")
	}
	if err == nil {
		_, err = fmt.Fprintf(out, "kind: %sList\n", s.Kind)
	}
	return err
}

// printPath prints what a template names of the list, all of which is kept for that.
func (s *Stream) printPath(out io.Writer, template string) error {
	items := []any{}
	err := s.eachPlain(func(plain any) error {
		items = append(items, plain)
		return nil
	})
	if err != nil {
		return err
	}
	return printPath(out, template, map[string]any{"apiVersion": APIVersion, "kind": s.Kind + "List", "items": items})
}

// eachPlain calls do with each as JSON has it.
func (s *Stream) eachPlain(do func(plain any) error) error {
	return s.Each(func(one any) error {
		plain, err := plainly(one)
		if err != nil {
			return err
		}
		return do(plain)
	})
}

// kept is rows as text, until it is known how wide columns are.
type kept struct {
	lines Lines
	text  Packed   // a line each, with tabs between cells, which have none
	line  []byte   // that was added last
	above []string // the same as a row
}

// same stands for a cell that is as the one above it, which most are. No text has it.
const same = "\v"

func (k *kept) add(row []string) {
	k.lines.fit(row)
	k.line = k.line[:0]
	for i, cell := range row {
		if i > 0 {
			k.line = append(k.line, '\t')
		}
		if i < len(k.above) && k.above[i] == cell {
			k.line = append(k.line, same...)
			continue
		}
		k.line = append(k.line, lb.Printable(cell)...)
	}
	k.line = append(k.line, '\n')
	k.above = append(k.above[:0], row...)
	_, _ = k.text.Write(k.line) // the reader says what fails
}

// write writes the rows, and lets go of them.
func (k *kept) write(out io.Writer) error {
	text, err := k.text.Reader()
	if err != nil {
		return err
	}
	var row []string
	for from := bufio.NewReader(text); ; {
		line, err := from.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		above := row
		row = row[:0]
		for cell := range strings.SplitSeq(strings.TrimSuffix(line, "\n"), "\t") {
			if cell == same {
				cell = above[len(row)]
			}
			row = append(row, cell)
		}
		if err := k.lines.Write(out, row); err != nil {
			return err
		}
	}
}
