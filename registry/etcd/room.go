package etcd

import "time"

// room decides when a service with more keys than MaxListed is listed again, since keys that did not fit may have room now. Each
// list reads MaxListed keys, whose values may change often. So a list for room waits until roomEvery after the last list, or
// until half of the keys have gone. room is pure: time is an argument.
type room struct {
	isShort bool      // since the last list, a key did not fit
	most    int       // the largest number of keys that were kept since the last list
	since   time.Time // of the last list
}

// roomEvery is how long lists for room are apart.
const roomEvery = time.Minute

// due returns the time of the next list of a service with this number of keys. It is zero if every key fits, or if no key has
// gone since the list.
func (r *room) due(keys int) time.Time {
	switch {
	case !r.isShort || keys == r.most:
		return time.Time{}
	case keys <= r.most/2:
		return r.since
	}
	return r.since.Add(roomEvery)
}
