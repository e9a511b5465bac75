package manifest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// chunk is the text of one document of a file.
type chunk struct {
	text []byte
	line int // in the file, from 1, of the first line that says something
	json bool
	err  error // why the file cannot be split here, text is nil then
}

// split takes a file apart: JSON objects one after another, or YAML documents
// separated by "---". Chunks that say nothing are left out.
func split(data []byte) []chunk {
	if utilyaml.IsJSONBuffer(data) {
		// A YAML document can start with a brace too.
		if chunks := splitJSON(data); len(chunks) > 0 && chunks[0].err == nil || json.Valid(data) {
			return chunks
		}
	}
	return splitYAML(data)
}

func splitJSON(data []byte) []chunk {
	var chunks []chunk
	d := json.NewDecoder(bytes.NewReader(data))
	at := lineCounter{data: data, line: 1}
	for {
		before := int(d.InputOffset())
		var raw json.RawMessage
		err := d.Decode(&raw)
		if err == io.EOF {
			return chunks
		}
		c := chunk{text: raw, json: true, err: err}
		if c.err != nil {
			c.text = nil
		}
		c.line = at.skip(before).line + leadingBlankLines(data[before:])
		chunks = append(chunks, c)
		if err != nil {
			return chunks // where the next object starts cannot be told
		}
	}
}

func splitYAML(data []byte) []chunk {
	var chunks []chunk
	source := bytes.NewReader(data)
	buffered := bufio.NewReaderSize(source, 64<<10)
	r := utilyaml.NewYAMLReader(buffered)
	at := lineCounter{data: data, line: 1}
	for {
		text, err := r.Read()
		if err == io.EOF {
			return chunks
		}
		c := chunk{text: text, line: at.line, err: err}
		at.skip(len(data) - source.Len() - buffered.Buffered())
		if err != nil {
			// The reader stands behind the separator that it did not like.
			c.text, c.line = nil, at.line-1
		} else {
			c.text, c.line = trim(text, c.line)
		}
		if c.err != nil || len(c.text) > 0 {
			chunks = append(chunks, c)
		}
	}
}

// trim cuts off leading lines without content, so that a document is told by
// the line on which it begins.
func trim(text []byte, line int) ([]byte, int) {
	for len(text) > 0 {
		first, rest, _ := bytes.Cut(text, []byte("\n"))
		first = bytes.TrimSpace(first)
		if len(first) > 0 && first[0] != '#' && !bytes.HasPrefix(first, []byte("---")) {
			return text, line
		}
		text, line = rest, line+1
	}
	return nil, line
}

// lineCounter turns offsets that only grow into line numbers.
type lineCounter struct {
	data   []byte
	offset int
	line   int
}

func (c *lineCounter) skip(offset int) *lineCounter {
	if offset > c.offset {
		c.line += bytes.Count(c.data[c.offset:offset], []byte("\n"))
		c.offset = offset
	}
	return c
}

func leadingBlankLines(data []byte) int {
	rest := bytes.TrimLeft(data, " \t\r\n")
	return bytes.Count(data[:len(data)-len(rest)], []byte("\n"))
}
