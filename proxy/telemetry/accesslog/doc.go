// Package accesslog writes the access log: one line for each request and stream, of JSON or in
// a format of the configuration. At the end of each, the core fills a Record and adds it to its loop's Feed.
//
//	log.go     one loop's part: which requests have a line
//	stream.go  the line of a stream, written at its end
//	record.go  the contents of a line
//	encode.go  its encoding
//	format.go  its encoding by access_log.format
//	queue.go   the bounded queue from the loops to the writer; no loop waits
//	writer.go  the goroutine that writes
//	output.go  the file that it writes to
//
// A loop encodes its lines into a batch that it owns. It passes the batch to the
// writer once it is full or a moment old. The number of batches is fixed, and they
// are reused: while all of them are queued, new lines are dropped and counted.
package accesslog
