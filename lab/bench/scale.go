package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Dimension is what grows, while all else stays as it is in a setting of base.
type Dimension struct {
	Name  string `json:"name"`
	Unit  string `json:"unit"` // of the steps; "": they count what the name says
	Steps []int  `json:"steps"`

	set func(*setting, int)
}

// A setting is where one point of a curve is measured.
type setting struct {
	size
	connections int
	body        int // of requests, in bytes
}

// base has ten endpoints, since a link carries 4,096 requests at a time and refuses
// more: three were too few for 10,000 connections, which do not spread evenly.
var base = setting{size{loops: 1, endpoints: 10, routes: 1}, 64, 300}

// Dimensions are all that are known, in the order of the report.
func Dimensions() []Dimension {
	return []Dimension{
		{"connections", "", []int{1, 10, 100, 1000, 10_000}, func(s *setting, n int) { s.connections = n }},
		{"endpoints", "", []int{3, 10, 100, 1000}, func(s *setting, n int) { s.endpoints = n }},
		{"routes", "", []int{1, 10, 100, 1000}, func(s *setting, n int) { s.routes = n }},
		{"body", "bytes", []int{0, 1 << 10, 16 << 10, 128 << 10, 1 << 20}, func(s *setting, n int) { s.body = n }},
		{"loops", "", []int{1, 2}, func(s *setting, n int) { s.loops = n }},
	}
}

// ChooseDimensions returns those with these names, in the order of Dimensions; all if
// there are none.
func ChooseDimensions(names []string) ([]Dimension, error) {
	return choose("dimension", Dimensions(), func(d Dimension) string { return d.Name }, names)
}

// at is the setting of a step.
func (d Dimension) at(step int) setting {
	s := base
	d.set(&s, step)
	return s
}

// load names a step in the place of a load.
func (d Dimension) load(step int) string { return fmt.Sprintf("%s %d", d.Name, step) }

// ScaleOptions say what grows.
type ScaleOptions struct {
	Tools      Tools
	Rows       []Row // of sidecars alone
	Rounds     int
	Dimensions []Dimension
	Lead       time.Duration // of the load of each point before it is measured: all connections are to be there then
	Duration   time.Duration // of what is measured

	// Progress is called with a line of text before each point.
	Progress func(string)
}

// RunScale measures each row at each step of each dimension. Whatever it started has
// ended when it returns, also when it failed or ctx ended.
func RunScale(ctx context.Context, o ScaleOptions) (*ScaleReport, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	r := &ScaleReport{Began: time.Now(), Rounds: o.Rounds, Tools: o.Tools, Machine: describeMachine(ctx, o.Tools), Dimensions: o.Dimensions}
	for _, row := range o.Rows {
		r.Rows = append(r.Rows, row.Name)
	}
	descriptors, err := raiseDescriptors(o.mostDescriptors())
	if err != nil {
		return nil, err
	}
	for round := range o.Rounds {
		for _, d := range o.Dimensions {
			for _, step := range d.Steps {
				for _, row := range o.Rows {
					at := d.at(step)
					if at.descriptors() > descriptors {
						r.leaveOut(d, step, descriptors)
						continue
					}
					o.Progress(fmt.Sprintf("round %d of %d: %s %d, %s", round+1, o.Rounds, d.Name, step, row.Name))
					sample, err := o.measure(ctx, row, at)
					if err != nil {
						return nil, fmt.Errorf("%s %d: %w", d.Name, step, err)
					}
					sample.Round, sample.Load = round+1, d.load(step)
					r.Samples = append(r.Samples, sample)
				}
			}
		}
	}
	r.Machine.after()
	return r, nil
}

func (o *ScaleOptions) validate() error {
	if o.Rounds < 1 || len(o.Rows) == 0 || len(o.Dimensions) == 0 || o.Duration <= 0 {
		return errors.New("bench: want a round, a row and a dimension at least, and points that take time")
	}
	for _, row := range o.Rows {
		if !row.sidecars() {
			return fmt.Errorf("bench: row %s has no sidecar to grow", row.Name)
		}
	}
	var loads []string
	for _, d := range o.Dimensions {
		for _, step := range d.Steps {
			loads = append(loads, d.load(step))
		}
	}
	return apart(loads)
}

// descriptors is how many connections a sidecar may have: those of its callers, and to
// each endpoint a link, or one for each request that may be at the replica.
func (s setting) descriptors() int { return s.connections + s.endpoints + concurrency }

// mostDescriptors is what the largest step needs.
func (o *ScaleOptions) mostDescriptors() (most int) {
	for _, d := range o.Dimensions {
		for _, step := range d.Steps {
			most = max(most, d.at(step).descriptors())
		}
	}
	return most
}

// leadOut is how much longer a load lasts than it is measured.
const leadOut = time.Second

// measure makes the sample of a row in a setting.
func (o *ScaleOptions) measure(ctx context.Context, row Row, at setting) (sample Sample, err error) {
	row.size = at.size
	err = with(ctx, o.Tools, row, func(s *Stack) error {
		sample, err = s.amid(ctx, sized(at.connections, at.body, o.Lead+o.Duration+leadOut), o.Lead, o.Duration)
		return err
	})
	return sample, err
}
