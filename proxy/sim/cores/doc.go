// Package cores calculates how a sidecar grows with the cores of a machine, of what one core costs: the simulator has one
// thread, and few machines have 64 cores. Loops share nothing on a request's path but counters of its service. So the
// calculation has three parts: how many requests share a write to a link, how long cores wait for a counter, and how soon
// connections move to loops that have time. Only tests use it; TestCurve prints the tables of docs/performance.md.
package cores
