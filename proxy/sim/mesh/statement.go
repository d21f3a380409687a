package mesh

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// statement is a kind of line of a script.
type statement struct {
	word string
	read func(s *Spec, w *words)
	// show returns the lines for a Spec, without the word.
	show func(s *Spec) []string
}

// line returns a show function for one line.
func line(show func(s *Spec) string) func(s *Spec) []string {
	return func(s *Spec) []string { return []string{show(s)} }
}

// count is a statement of one whole number.
func count(word string, least int, of func(s *Spec) *int) statement {
	return statement{word,
		func(s *Spec, w *words) { *of(s) = w.whole("the number of "+word, least) },
		line(func(s *Spec) string { return strconv.Itoa(*of(s)) })}
}

// part is a statement of a share of the requests. A share of 0 has no line.
func part(word string, of func(s *Spec) *float64) statement {
	return statement{word,
		func(s *Spec, w *words) { *of(s) = w.share("a share of the requests") },
		func(s *Spec) []string {
			if *of(s) == 0 {
				return nil
			}
			return []string{share(*of(s))}
		}}
}

var statements = []statement{
	{"seed",
		func(s *Spec, w *words) {
			word := w.next("a seed")
			n, err := strconv.ParseUint(word, 10, 64)
			if err != nil {
				w.fail("%q is not a seed, a number", word)
			}
			s.Seed = n
		},
		line(func(s *Spec) string { return strconv.FormatUint(s.Seed, 10) })},
	count("consumers", 1, func(s *Spec) *int { return &s.Consumers }),
	count("providers", 1, func(s *Spec) *int { return &s.Providers }),
	count("loops", 1, func(s *Spec) *int { return &s.Loops }),
	{"direct",
		func(s *Spec, _ *words) { s.Direct = true },
		func(s *Spec) []string {
			if !s.Direct {
				return nil
			}
			return []string{""}
		}},
	count("threads", 1, func(s *Spec) *int { return &s.Threads }),
	{"capacity",
		func(s *Spec, w *words) {
			for s.Capacity = nil; len(w.left) > 0; {
				s.Capacity = append(s.Capacity, w.number("a factor of threads"))
			}
		},
		func(s *Spec) []string { return list(s.Capacity) }},
	{"weights",
		func(s *Spec, w *words) {
			for s.Weights = nil; len(w.left) > 0; {
				s.Weights = append(s.Weights, w.whole("a weight", 1))
			}
		},
		func(s *Spec) []string { return list(s.Weights) }},
	count("queue", 0, func(s *Spec) *int { return &s.Queue }),
	{"service",
		func(s *Spec, w *words) {
			s.Service = w.duration("the median service time")
			w.skip("sigma")
			s.Sigma = w.number("the sigma of the service time")
		},
		line(func(s *Spec) string { return s.Service.String() + " sigma " + number(s.Sigma) })},
	{"stalls",
		func(s *Spec, w *words) {
			w.skip("every")
			s.StallEvery = w.duration("the mean time between stalls")
			w.skip("for")
			s.StallFor = w.duration("the length of a stall")
		},
		func(s *Spec) []string {
			if s.StallEvery == 0 {
				return nil
			}
			return []string{"every " + s.StallEvery.String() + " for " + s.StallFor.String()}
		}},
	{"http2",
		func(s *Spec, w *words) {
			switch word := w.next("callers or applications"); word {
			case "callers":
				s.HTTP2Callers = true
			case "applications":
				s.HTTP2Apps = true
			default:
				w.fail("http2 is for callers or applications, not %q", word)
			}
		},
		func(s *Spec) (lines []string) {
			if s.HTTP2Callers {
				lines = append(lines, "callers")
			}
			if s.HTTP2Apps {
				lines = append(lines, "applications")
			}
			return lines
		}},
	{"stop",
		func(s *Spec, _ *words) { s.Stop = true },
		func(s *Spec) []string {
			if !s.Stop {
				return nil
			}
			return []string{""}
		}},
	{"stragglers",
		func(s *Spec, w *words) {
			s.Stragglers = w.share("the share of the stragglers")
			w.skip("take")
			s.StragglerFor = w.duration("how much longer they take")
		},
		func(s *Spec) []string {
			if s.Stragglers == 0 {
				return nil
			}
			return []string{share(s.Stragglers) + " take " + s.StragglerFor.String()}
		}},
	{"bandwidth",
		func(s *Spec, w *words) { s.Bandwidth = int(w.rate()) },
		func(s *Spec) []string {
			if s.Bandwidth == 0 {
				return nil
			}
			return []string{strconv.Itoa(s.Bandwidth) + "/s"}
		}},
	part("breaks", func(s *Spec) *float64 { return &s.Breaks }),
	{"news",
		func(s *Spec, w *words) {
			s.NewsMin = w.duration("the least delay")
			w.skip("to")
			s.NewsMax = w.duration("the greatest delay")
		},
		line(func(s *Spec) string { return s.NewsMin.String() + " to " + s.NewsMax.String() })},
	{"lease",
		func(s *Spec, w *words) { s.Lease = w.duration("the time until the dead leave the registry") },
		line(func(s *Spec) string { return s.Lease.String() })},
	{"load",
		func(s *Spec, w *words) {
			s.Load = w.rate()
			w.skip("for")
			s.Duration = w.duration("the length of the load")
		},
		line(func(s *Spec) string { return number(s.Load) + "/s for " + s.Duration.String() })},
	{"batch",
		func(s *Spec, w *words) { s.Batch = w.rate() },
		func(s *Spec) []string {
			if s.Batch == 0 {
				return nil
			}
			return []string{number(s.Batch) + "/s"}
		}},
	{"warmup",
		func(s *Spec, w *words) { s.WarmUp = w.duration("the time that is not measured") },
		line(func(s *Spec) string { return s.WarmUp.String() })},
	part("abandon", func(s *Spec) *float64 { return &s.Abandon }),
	part("unsafe", func(s *Spec) *float64 { return &s.Unsafe }),
	part("large", func(s *Spec) *float64 { return &s.Large }),
	part("same", func(s *Spec) *float64 { return &s.Same }),
	configured("consumer", func(s *Spec) map[string]string { return s.Consumer }, func(s *Spec) error { _, err := s.consumerConfig(); return err }),
	configured("provider", func(s *Spec) map[string]string { return s.Provider }, func(s *Spec) error { _, err := s.providerConfig(); return err }),
	configured("route", func(s *Spec) map[string]string { return s.Route }, func(s *Spec) error { _, err := s.consumerConfig(); return err }),
	{"at", func(s *Spec, w *words) { s.Events = append(s.Events, readEvent(w, false)) }, nil},
	{"every", func(s *Spec, w *words) { s.Events = append(s.Events, readEvent(w, true)) }, nil},
}

// configured is a statement of one key of the product's configuration.
func configured(word string, of func(s *Spec) map[string]string, check func(s *Spec) error) statement {
	return statement{word,
		func(s *Spec, w *words) {
			key, value, ok := strings.Cut(w.rest(), ": ")
			if !ok {
				w.fail("%s needs a key of the configuration and its value, such as timeout: 2s", word)
				return
			}
			of(s)[key] = value
			if err := check(s); err != nil {
				w.err = errors.New("the configuration is wrong: " + err.Error())
			}
		},
		func(s *Spec) (lines []string) {
			keys := of(s)
			for _, key := range slices.Sorted(maps.Keys(keys)) {
				lines = append(lines, key+": "+keys[key])
			}
			return lines
		}}
}

// list returns a line with the values, or no line if there are none.
func list[T any](values []T) []string {
	if len(values) == 0 {
		return nil
	}
	return []string{strings.Trim(fmt.Sprint(values), "[]")}
}

// String returns a script for the Spec.
func (s *Spec) String() string {
	var b strings.Builder
	for _, st := range statements {
		if st.show == nil {
			continue
		}
		for _, l := range st.show(s) {
			b.WriteString(strings.TrimSpace(st.word+" "+l) + "\n")
		}
	}
	for _, e := range s.Events {
		b.WriteString(e.String() + "\n")
	}
	return b.String()
}

// read applies one line to the Spec. ok is false when its first word is unknown.
func (s *Spec) read(w *words) (ok bool) {
	word := w.next("a statement")
	for i := range statements {
		if statements[i].word == word {
			statements[i].read(s, w)
			return true
		}
	}
	w.fail("no statement begins with %q", word)
	return false
}
