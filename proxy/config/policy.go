package config

import (
	"slices"
	"time"
)

// Policy is what a route may override of its service.
type Policy struct {
	// For the whole request, all attempts included. Then 504 `deadline`.
	Timeout time.Duration `yaml:"timeout" min:"1ms"`
	// Requests that may be [sent twice](operations.md#consent), beside GET, HEAD and those with `x-remora-idempotent: 1`: all (`true`), PUT, DELETE, OPTIONS and TRACE (`methods`), those with an `Idempotency-Key` (`key`), or `[methods, key]`.
	Idempotent []string `yaml:"idempotent" oneof:"true false methods key" single:"true" filled:"true"`
	// `batch` requests wait for the others. The header `x-remora-priority: batch` says it of one request.
	Priority string `yaml:"priority" oneof:"online batch"`
	Retry    Retry  `yaml:"retry"`
	Hedge    Hedge  `yaml:"hedge"`
}

// DefaultPolicy returns the policy of a service that sets none: one retry where the application
// has not seen the request or may see it twice, and no hedges but a forecast of what they would bring.
func DefaultPolicy() Policy { return withDefaults[Policy]() }

func (p *Policy) setDefaults() {
	p.Timeout, p.Idempotent, p.Priority = 15*time.Second, []string{IdempotentFalse}, PriorityOnline
}

// Priorities.
const (
	PriorityOnline = "online"
	PriorityBatch  = "batch" // after online
)

// clone returns a copy of p that shares no memory with p.
func (p Policy) clone() Policy {
	p.Retry.On, p.Idempotent = slices.Clone(p.Retry.On), slices.Clone(p.Idempotent)
	return p
}

// check checks a policy at a path. An error in what it has inherited was reported there.
func (p *Policy) check(in scope, at path, inherited []*Policy) {
	if !slices.ContainsFunc(inherited, func(q *Policy) bool { return slices.Equal(p.Idempotent, q.Idempotent) }) {
		p.checkIdempotent(in, at.key("idempotent"))
	}
	if !slices.ContainsFunc(inherited, func(q *Policy) bool { return slices.Equal(p.Retry.On, q.Retry.On) }) {
		p.Retry.checkOn(in, at.key("retry").key("on"))
	}
	if !slices.ContainsFunc(inherited, func(q *Policy) bool {
		return p.Retry.PerTryTimeout == q.Retry.PerTryTimeout && p.Timeout == q.Timeout
	}) {
		p.Retry.checkTimeout(in, at.key("retry").key("per_try_timeout"), p.Timeout)
	}
	if !slices.ContainsFunc(inherited, func(q *Policy) bool { return p.Hedge == q.Hedge && p.Timeout == q.Timeout }) {
		p.Hedge.check(in, at.key("hedge"), p.Timeout)
	}
}
