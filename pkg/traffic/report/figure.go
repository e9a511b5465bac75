package report

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Figure is a drawing.
type Figure struct {
	Name    string // of its file, without an ending
	Title   string
	Caption string // how to read it
	plot    *plot.Plot
}

// SVG returns the figure as SVG.
func (f Figure) SVG() ([]byte, error) {
	c := vgsvg.New(width, height)
	return f.drawn(c, c)
}

// dots is how many dots an inch of a PNG has: enough for screens that have two
// for each of the page's.
const dots = 192

// PNG returns the figure as PNG.
func (f Figure) PNG() ([]byte, error) {
	c := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dots))}
	return f.drawn(c, c)
}

func (f Figure) drawn(c vg.CanvasSizer, w vg.CanvasWriterTo) ([]byte, error) {
	f.plot.Draw(draw.Crop(draw.New(c), vg.Points(4), -vg.Points(10), vg.Points(4), -vg.Points(4)))
	var out bytes.Buffer
	if _, err := w.WriteTo(&out); err != nil {
		return nil, fmt.Errorf("draw %s: %w", f.Name, err)
	}
	return out.Bytes(), nil
}

// inline returns the figure as an element of HTML.
func (f Figure) inline() (string, error) {
	svg, err := f.SVG()
	if err != nil {
		return "", err
	}
	_, svg, _ = bytes.Cut(svg, []byte("<svg ")) // without the prologue, which HTML does not have
	return `<svg role="img" ` + string(svg), nil
}

// WriteFigures writes each figure as SVG and PNG to a folder, which it makes,
// and returns the names of the files.
func WriteFigures(dir string, figures []Figure) ([]string, error) {
	return writeFigures(dir, figures, ".svg", ".png")
}

func writeFigures(dir string, figures []Figure, endings ...string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("write plots: %w", err)
	}
	var files []string
	for _, f := range figures {
		for _, ending := range endings {
			content, err := map[string]func() ([]byte, error){".svg": f.SVG, ".png": f.PNG}[ending]()
			if err != nil {
				return files, err
			}
			file := filepath.Join(dir, f.Name+ending)
			if err := os.WriteFile(file, content, 0o644); err != nil {
				return files, fmt.Errorf("write plots: %w", err)
			}
			files = append(files, file)
		}
	}
	return files, nil
}

// otherThanPlain is what a file's name had better not have.
var otherThanPlain = regexp.MustCompile(`[^a-z0-9.]+`)

// fileName makes the name of a file from words.
func fileName(words ...string) string {
	name := otherThanPlain.ReplaceAllString(strings.ToLower(strings.Join(words, "-")), "-")
	const most = 100
	return strings.Trim(name[:min(len(name), most)], "-.")
}
