package http

import "time"

// A server closes connections that have been idle for a time of its own. A request that is put on
// one just then is lost, and fails if it may not be sent twice. So such a request takes only a
// connection that the server surely keeps.
const (
	// firstKept is how long a server surely keeps idle connections, as far as nothing is known of
	// it. The shortest default of common servers is 2 s (gunicorn).
	firstKept = time.Second
	// Some servers look for idle connections once a second, so they close one earlier than
	// another: all are kept for this part of the time after which one was closed.
	keptNumerator, keptDenominator = 3, 4
	// A server that ends closes all its connections. So the end of a connection that was idle for less says
	// nothing about the timeout of the server.
	leastClosed = 250 * time.Millisecond
)

// keeping is what a pool knows of its server's idle timeout.
type keeping struct {
	kept time.Duration // the server surely keeps connections that have been idle for so long
}

// closed notes that the server has closed a connection that was idle for so long.
func (k *keeping) closed(idle time.Duration) {
	if idle >= leastClosed {
		k.kept = min(k.kept, idle*keptNumerator/keptDenominator)
	}
}

// outlived notes that the server has kept a connection that was idle for all of the pool's timeout.
func (k *keeping) outlived(timeout time.Duration) { k.kept = timeout }
