package cli

import (
	"archive/tar"
	"bytes"
	"io"
	"regexp"
	"slices"
	"time"

	"github.com/headgate/headgate/pkg/command"
)

// dumpedFile is a file of a sysdump until its length is known, which stands before it in the archive. It is kept
// compressed: JSON of many backends takes a twentieth then.
type dumpedFile struct {
	name  string
	kept  command.Packed
	size  int64  // of what is kept
	lines []byte // that came last
}

func newDumpedFile(name string) *dumpedFile { return &dumpedFile{name: name} }

// dumpedLines is how many bytes of lines are looked through for secrets at once.
const dumpedLines = 1 << 16

// Write takes text of which no secret is longer than a line.
func (f *dumpedFile) Write(text []byte) (int, error) {
	f.lines = append(f.lines, text...)
	if len(f.lines) < dumpedLines {
		return len(text), nil
	}
	whole := bytes.LastIndexByte(f.lines, '\n') + 1
	if err := f.keep(f.lines[:whole]); err != nil {
		return 0, err
	}
	f.lines = append(f.lines[:0], f.lines[whole:]...)
	return len(text), nil
}

// keep takes text as a whole.
func (f *dumpedFile) keep(text []byte) error {
	text = withoutSecrets(text)
	f.size += int64(len(text))
	_, err := f.kept.Write(text)
	return err
}

// pack writes the file into the archive.
func (f *dumpedFile) pack(to *tar.Writer) error {
	if err := f.keep(f.lines); err != nil {
		return err
	}
	text, err := f.kept.Reader()
	if err != nil {
		return err
	}
	if err := to.WriteHeader(&tar.Header{Name: "headgate-sysdump/" + f.name, Mode: 0o600, Size: f.size, ModTime: time.Now().Truncate(time.Second)}); err != nil {
		return err
	}
	_, err = io.CopyN(to, text, f.size)
	return err
}

// secrets are what may be within the words of others, such as errors and addresses of servers. Each has one
// of its words, in lower case: to look for them costs little, and mostly there are none.
var secrets = []struct {
	words   []string
	pattern *regexp.Regexp
}{
	{[]string{"://"}, regexp.MustCompile(`(://)[^/@\s"]+(@)`)},
	{[]string{"bearer", "token", "password", "secret"}, regexp.MustCompile(`(?i)(\b(?:bearer|token|password|secret)[ =:]+)[^\s",}]+`)},
	{[]string{"private key"}, regexp.MustCompile(`(?s)(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?:-----END [A-Z ]*-----|$)`)},
}

func withoutSecrets(text []byte) []byte {
	lower := bytes.ToLower(text)
	for _, s := range secrets {
		if slices.ContainsFunc(s.words, func(word string) bool { return bytes.Contains(lower, []byte(word)) }) {
			text = s.pattern.ReplaceAll(text, []byte("${1}REDACTED${2}"))
		}
	}
	return text
}
