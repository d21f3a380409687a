package race

import (
	"time"

	"github.com/remora-proxy/remora/proxy/fifo"
)

// Queue is a FIFO of attempts that wait for a connection. An attempt is in one queue at most.
type Queue struct{ fifo.Queue[*Attempt] }

// InsertByID puts a in the order of its carrier's ids, which rise from first to last.
func (q *Queue) InsertByID(a *Attempt, now time.Duration) {
	q.AddSorted(&a.waiting, a, now, func(other *Attempt) bool { return other.carrierID > a.carrierID })
}

// Remove takes out a, which must be in the queue.
func (q *Queue) Remove(a *Attempt) { a.waiting.Remove() }
