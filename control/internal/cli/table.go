package cli

import (
	"bytes"
	"io"
	"strings"
	"unicode/utf8"
)

// table prints rows in columns. It prints a long list while the list arrives: it holds back at most
// `heldBack` rows to find the widths of the columns. Widths never shrink.
type table struct {
	out     io.Writer
	heads   []string
	right   []bool
	widths  []int
	indent  string
	pending [][]string
	started bool
}

const heldBack = 256 // rows

// newTable returns a table that prints to `out`. A head that begins with ">" aligns its column to the right.
func newTable(out io.Writer, indent string, heads ...string) *table {
	t := &table{out: out, indent: indent}
	t.columns(heads...)
	return t
}

func (t *table) columns(heads ...string) {
	for _, head := range heads {
		name := strings.TrimPrefix(head, ">")
		t.heads = append(t.heads, name)
		t.right = append(t.right, name != head)
		t.widths = append(t.widths, utf8.RuneCountInString(name))
	}
}

// widen adds columns on the right, which earlier rows do not have. If heads were printed already, all are printed again.
func (t *table) widen(heads ...string) error {
	var err error
	if t.started {
		err = t.flush()
	}
	t.columns(heads...)
	t.started = false
	return err
}

func (t *table) hold(cells ...string) { t.pending = append(t.pending, cells) }

func (t *table) row(cells ...string) error {
	t.hold(cells...)
	if len(t.pending) < heldBack {
		return nil
	}
	return t.flush()
}

// flush prints the rows that were held back, and before them the heads of the columns, if these are new.
func (t *table) flush() error {
	return t.writeTo(t.out, styleOf(t.out).bold)
}

func (t *table) writeTo(out io.Writer, bold func(string) string) error {
	for _, row := range t.pending {
		for i, cell := range row {
			if width := utf8.RuneCountInString(cell); width > t.widths[i] {
				t.widths[i] = width
			}
		}
	}
	var text bytes.Buffer
	if !t.started {
		t.started = true
		text.WriteString(bold(t.laidOut(t.heads)) + "\n")
	}
	for _, row := range t.pending {
		text.WriteString(t.laidOut(row) + "\n")
	}
	t.pending = t.pending[:0]
	_, err := out.Write(text.Bytes())
	return err
}

func (t *table) laidOut(row []string) string {
	var line strings.Builder
	line.WriteString(t.indent)
	for i, cell := range row {
		pad := strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(cell))
		if t.right[i] {
			line.WriteString(pad + cell + "  ")
		} else {
			line.WriteString(cell + pad + "  ")
		}
	}
	return strings.TrimRight(line.String(), " ")
}
