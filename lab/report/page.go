package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
)

// A Page is a report of tables and charts, one below the other.
type Page struct {
	Title    string
	Preface  []string // paragraphs
	Sections []Section
}

// A Section is a part of a page.
type Section struct {
	Title string
	Bars  []Bars
	Lines []Lines
	Grid  Grid
}

// Text writes p's tables for a terminal.
func (p Page) Text(w io.Writer) error { return p.write(w, "\n%s\n\n", Grid.Text) }

// Markdown writes p's tables as a part of a longer page.
func (p Page) Markdown(w io.Writer) error { return p.write(w, "\n### %s\n\n", Grid.Markdown) }

func (p Page) write(w io.Writer, heading string, table func(Grid) string) error {
	var b strings.Builder
	b.WriteString(strings.Join(p.Preface, "\n") + "\n")
	for _, s := range p.Sections {
		fmt.Fprintf(&b, heading, s.Title)
		b.WriteString(table(s.Grid))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

//go:embed sections.html
var sectionsSource string

var sections = template.Must(template.New("sections").Parse(sectionsSource))

// HTML writes p as one page that needs nothing from elsewhere.
func (p Page) HTML(w io.Writer) error {
	if err := sections.Execute(w, p); err != nil {
		return fmt.Errorf("report: HTML: %w", err)
	}
	return nil
}
