// Package stats defines the counters of a loop: plain integers and histograms that only
// the loop writes, and the plain data of its reports.
//
//	loop.go          counters of a driver on one loop
//	worker.go        counters of the proxy on one loop
//	service.go       counters of a service on one loop
//	filter.go        what a fault or a cache did for a request
//	endpoint.go      counters of an endpoint on one loop
//	probes.go        counters of probes for load
//	handoff.go       kinds of connections and bodies that leave a loop
//	histogram.go     Histogram, of latencies
//	size.go          SizeHistogram, of small numbers
//	milliseconds.go  MillisecondRing, the last few seconds by the millisecond
//	report.go        the reports of one loop
package stats
