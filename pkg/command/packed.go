package command

import (
	"bytes"
	"compress/flate"
	"io"
)

// Packed is text that is written first, and then read once. Of what is longer than a page all but the end is kept
// compressed: of many that are alike it takes a tenth then.
type Packed struct {
	packed pages
	packer *flate.Writer // nil until a page is full
	page   []byte        // what was written last
}

// pageSize is how much is compressed at a time.
const pageSize = 1 << 16

// Write implements io.Writer.
func (p *Packed) Write(text []byte) (int, error) {
	if len(p.page) > 0 && len(p.page)+len(text) > pageSize {
		if err := p.pack(); err != nil {
			return 0, err
		}
	}
	p.page = append(p.page, text...)
	return len(text), nil
}

func (p *Packed) pack() error {
	if p.packer == nil {
		p.packer, _ = flate.NewWriter(&p.packed, flate.BestSpeed) // which is a level
	}
	_, err := p.packer.Write(p.page)
	p.page = p.page[:0]
	return err
}

// Reader returns what reads all of it, and lets go of what is read. Nothing can be written then.
func (p *Packed) Reader() (io.Reader, error) {
	end := bytes.NewReader(p.page)
	if p.packer == nil {
		return end, nil
	}
	err := p.packer.Close()
	p.packer = nil
	return io.MultiReader(flate.NewReader(&p.packed), end), err
}

// pages are bytes that are written first and then read: one array of all would be copied again and again as it grows.
type pages [][]byte

// Write implements io.Writer.
func (p *pages) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		last := len(*p) - 1
		if last < 0 || len((*p)[last]) == pageSize {
			*p = append(*p, make([]byte, 0, pageSize))
			last++
		}
		page := (*p)[last]
		n := min(len(rest), pageSize-len(page))
		(*p)[last], rest = append(page, rest[:n]...), rest[n:]
	}
	return len(b), nil
}

// Read implements io.Reader.
func (p *pages) Read(b []byte) (int, error) {
	if len(*p) == 0 {
		return 0, io.EOF
	}
	n := copy(b, (*p)[0])
	if (*p)[0] = (*p)[0][n:]; len((*p)[0]) == 0 {
		(*p)[0], *p = nil, (*p)[1:]
	}
	return n, nil
}
