// Package probe decides when a loop asks endpoints for their load, and which endpoint the answers make best. The
// method is Prequal's (Wydrowski, Kleinberg, Rumble and Archer, "Load is not what you should balance: Introducing
// Prequal", NSDI 2024): probes to a few endpoints, a small pool of fresh answers, and the hot-cold lexicographic rule.
//
//	pool.go      the fresh answers, and the choice among them
//	sparse.go    whether traffic is so sparse that probes help
//	patience.go  whether a request waits for answers
//
// Two things differ from the paper. A request waits for answers if the pool has too few fresh ones, as in the
// synchronous mode of Prequal: a loop with 3 requests a second has only answers that are 300 ms old, and queues last tens
// of milliseconds. And endpoints report one latency, not one for each load, so the latency of the next
// request is assumed to be in proportion to latency times load.
//
// TestSparseCallers of package lb compares the method with picks that know all loads. docs/balancing.md has its table.
package probe
