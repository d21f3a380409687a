package shard

// Holder is a connection that holds memory.
type Holder interface {
	// ShedLargest abandons the request that holds the most, if that is LeastShed or
	// more and the connection can go on without it. It reports whether it did.
	ShedLargest() bool
	// CloseNow closes the connection at once and abandons its requests, also at applications.
	CloseNow()
}

// LeastShed is the least number of bytes for which a request is abandoned, or a
// connection closed while there are few of them.
const LeastShed = 64 << 10
