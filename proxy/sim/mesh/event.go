package mesh

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Action is what an Event does.
type Action uint8

// The actions. An action that lasts ends after Event.For, or with the load if For is 0.
const (
	Kill          Action = iota // the provider's sidecar and application end; For: they start again
	Start                       // a provider that is down starts
	Vanish                      // like Kill, but peers get no notice: a power cut
	Drain                       // the provider leaves in an orderly way; For: until it restarts
	Roll                        // all providers, one after another, each drained and restarted within For
	KillApp                     // the application alone; For: it starts again
	Stall                       // all requests of the application freeze for For
	Slow                        // service times are multiplied by Factor
	Fail                        // the application responds with 500 at once
	Pause                       // the sidecar's process stops for For
	Reset                       // connections between consumers and the provider break
	PartitionTo                 // what consumers send to the provider does not arrive
	PartitionFrom               // what the provider sends to consumers does not arrive
	EtcdDown                    // consumers get no snapshots
	LoadBy                      // the load is multiplied by Factor

	actions = int(LoadBy) + 1
)

// TargetKind is the kind of an Event's target.
type TargetKind uint8

// The kinds of targets.
const (
	TargetNone TargetKind = iota
	TargetProvider
	TargetConsumer
)

// Target is a consumer or provider, or all of them.
type Target struct {
	Kind  TargetKind
	Index int // from 1; 0 means all
}

// String returns the target as a script has it.
func (t Target) String() string {
	name := ""
	switch t.Kind {
	case TargetNone:
		return ""
	case TargetProvider:
		name = "provider"
	case TargetConsumer:
		name = "consumer"
	}
	if t.Index == 0 {
		return name + "s"
	}
	return name + " " + strconv.Itoa(t.Index)
}

// Event is something that happens to the mesh, once or again and again.
type Event struct {
	At     time.Duration // since the start
	Every  time.Duration // interval of repetitions, until the load ends; 0 means once
	Action Action
	Target Target
	Factor float64       // of Slow and LoadBy
	For    time.Duration // 0 means to the end
}

// syntax is the form of an action in a script.
type syntax struct {
	words   string     // %s stands for the target
	target  TargetKind // required kind of the target
	either  bool       // the target may be a consumer, too
	factor  bool       // a factor follows
	mustFor bool       // "for TIME" must follow
	mayFor  bool       // "for TIME" may follow
}

var syntaxes = [actions]syntax{
	Kill:          {words: "kill %s", target: TargetProvider, either: true, mayFor: true},
	Start:         {words: "start %s", target: TargetProvider},
	Vanish:        {words: "vanish %s", target: TargetProvider, mayFor: true},
	Drain:         {words: "drain %s", target: TargetProvider, mayFor: true},
	Roll:          {words: "rolling restart", mustFor: true},
	KillApp:       {words: "kill app of %s", target: TargetProvider, mayFor: true},
	Stall:         {words: "stall %s", target: TargetProvider, mustFor: true},
	Slow:          {words: "slow %s", target: TargetProvider, factor: true, mayFor: true},
	Fail:          {words: "fail %s", target: TargetProvider, mayFor: true},
	Pause:         {words: "pause %s", target: TargetProvider, either: true, mustFor: true},
	Reset:         {words: "reset %s", target: TargetProvider},
	PartitionTo:   {words: "partition consumers -> %s", target: TargetProvider, mayFor: true},
	PartitionFrom: {words: "partition %s -> consumers", target: TargetProvider, mayFor: true},
	EtcdDown:      {words: "etcd down", mayFor: true},
	LoadBy:        {words: "load", factor: true, mayFor: true},
}

// String returns the event as a script has it.
func (e Event) String() string {
	s := "at " + e.At.String()
	if e.Every > 0 {
		s = "every " + e.Every.String()
		if e.At != e.Every {
			s += " from " + e.At.String()
		}
	}
	form := &syntaxes[e.Action]
	if form.target == TargetNone {
		s += " " + form.words
	} else {
		s += " " + fmt.Sprintf(form.words, e.Target)
	}
	if form.factor {
		s += " x" + strconv.FormatFloat(e.Factor, 'g', -1, 64)
	}
	if e.For > 0 {
		s += " for " + e.For.String()
	}
	return s
}

// readEvent reads the rest of a line after "at", or after "every" if again is set.
func readEvent(w *words, again bool) (e Event) {
	if again {
		e.Every = w.duration("the time between two events")
		if e.At = e.Every; e.Every == 0 {
			w.fail("events need time between them")
		}
		if w.has("from") {
			e.At = w.duration("the time of the first event")
		}
	} else {
		e.At = w.duration("the time of the event")
	}
	text := w.rest()
	for i := range syntaxes {
		if w.left = match(&syntaxes[i], text, &e.Target); w.left != nil {
			e.Action = Action(i)
			syntaxes[i].readRest(&e, w)
			return e
		}
	}
	w.fail("unknown action %q", text)
	return e
}

// match reads an action and its target from the start of text. It returns the words after
// them, or nil if text does not begin with the action.
func match(form *syntax, text string, target *Target) (left []string) {
	words := split(text).left
	for _, want := range strings.Fields(form.words) {
		if len(words) == 0 {
			return nil
		}
		if want != "%s" {
			if words[0] != want {
				return nil
			}
			words = words[1:]
			continue
		}
		n := target.read(words)
		if n == 0 || target.Kind != form.target && !(form.either && target.Kind == TargetConsumer) {
			return nil
		}
		words = words[n:]
	}
	return append([]string{}, words...)
}

// read reads a target from the start of words. It returns the number of words that it
// read, 0 if there is no target.
func (t *Target) read(words []string) int {
	if len(words) == 0 {
		return 0
	}
	for kind, name := range map[TargetKind]string{TargetProvider: "provider", TargetConsumer: "consumer"} {
		switch words[0] {
		case name + "s":
			*t = Target{Kind: kind}
			return 1
		case name:
			if len(words) < 2 {
				return 0
			}
			n, err := strconv.Atoi(words[1])
			if err != nil || n < 1 {
				return 0
			}
			*t = Target{Kind: kind, Index: n}
			return 2
		}
	}
	return 0
}

// readRest reads the words after an action and its target.
func (form *syntax) readRest(e *Event, w *words) {
	if form.factor {
		e.Factor = w.factor()
	}
	if form.mustFor || form.mayFor && len(w.left) > 0 {
		w.skip("for")
		e.For = w.duration("a duration of the event")
	}
}
