// Package accesslog writes what became of each request, one JSON object a line.
//
//	log.go     one loop's part: which requests have a line
//	stream.go  the line of a stream, written at its end
//	record.go  what a line tells
//	encode.go  how
//	queue.go   the way from the loops to the writer: bounded, and no loop waits
//	writer.go  the goroutine that writes
//	output.go  where it writes to
//
// A loop encodes its lines into a batch that it owns, and hands that on when it is
// full or a moment old. Batches are few and go round: when all of them wait to be
// written, lines are dropped and counted.
package accesslog
