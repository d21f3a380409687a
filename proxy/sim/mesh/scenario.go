package mesh

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Scenario is a script: the Specs to run, and the expectations.
type Scenario struct {
	Name    string // of the file, without its folder and ending
	Title   string
	Full    Runs
	Small   Runs // the short form of go test; Full if the script has none
	Expects []Expect

	spec          Spec
	versus, small []lineOf // lines of versus and small
}

// Runs is a Spec, and the one to compare it with.
type Runs struct {
	Spec   Spec
	Versus *Spec // may be nil
}

// lineOf is a statement to be applied later.
type lineOf struct {
	number int
	text   string
}

// Load reads the script at path.
func Load(path string) (*Scenario, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, string(text))
}

// Parse reads a script. Errors have its name and the line.
func Parse(name, text string) (*Scenario, error) {
	base := filepath.Base(name)
	sc := &Scenario{Name: strings.TrimSuffix(base, filepath.Ext(base)), spec: NewSpec()}
	at := func(number int, err error) error { return fmt.Errorf("%s:%d: %w", name, number, err) }
	number := 0
	for l := range strings.Lines(text) {
		number++
		l, _, _ = strings.Cut(l, "#")
		if l = strings.TrimSpace(l); l == "" {
			continue
		}
		if err := sc.line(lineOf{number, l}); err != nil {
			return nil, at(number, err)
		}
	}
	if sc.Title == "" {
		return nil, at(number, errors.New("the scenario has no title"))
	}
	if err := sc.resolve(at); err != nil {
		return nil, err
	}
	return sc, nil
}

// resolve makes the Specs from the lines. at adds the number of a line to an error.
func (sc *Scenario) resolve(at func(int, error) error) (err error) {
	apply := func(base *Spec, lines []lineOf) Spec {
		s := base.clone()
		for _, l := range lines {
			w := split(l.text)
			s.read(w)
			if e := w.end(); e != nil && err == nil {
				err = at(l.number, e)
			}
		}
		if e := s.Validate(); e != nil && err == nil {
			err = at(0, e)
		}
		return s
	}
	sc.Full.Spec = apply(&sc.spec, nil)
	sc.Small.Spec = apply(&sc.spec, sc.small)
	if sc.versus != nil {
		full, small := apply(&sc.Full.Spec, sc.versus), apply(&sc.Small.Spec, sc.versus)
		sc.Full.Versus, sc.Small.Versus = &full, &small
	}
	for _, e := range sc.Expects {
		if e.OfVersus && sc.versus == nil && err == nil {
			err = at(e.Line, errors.New("there is nothing to compare with: no line begins with versus"))
		}
	}
	return err
}

func (sc *Scenario) line(l lineOf) error {
	word, rest, _ := strings.Cut(l.text, " ")
	switch word {
	case "title":
		sc.Title = strings.TrimSpace(rest)
		return nil
	case "versus":
		sc.versus = append(sc.versus, lineOf{l.number, rest})
		return nil
	case "small":
		sc.small = append(sc.small, lineOf{l.number, rest})
		return nil
	case "expect":
		w := split(rest)
		sc.Expects = append(sc.Expects, readExpect(w, l.number))
		return w.end()
	}
	w := split(l.text)
	sc.spec.read(w)
	return w.end()
}
