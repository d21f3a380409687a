// Package stats is what a loop counts: plain integers and histograms that only the loop
// writes, and the plain data of its reports.
//
//	worker.go  a loop's counters; loop.go those of its driver
//	service.go, endpoint.go  counters of a service and of an endpoint on one loop
//	handoff.go  what leaves a loop
//	histogram.go, size.go, milliseconds.go  the forms of counts
//	report.go  what a Worker reports
package stats
