package shard

// FreeList is memory of a loop that waits for its next use.
type FreeList[T any] []T

// maxFree bounds a free list; the garbage collector gets the rest.
const maxFree = 256

// Take returns a value of l; ok is false if there is none.
func (l *FreeList[T]) Take() (v T, ok bool) {
	last := len(*l) - 1
	if last < 0 {
		return v, false
	}
	var none T
	v, (*l)[last] = (*l)[last], none
	*l = (*l)[:last]
	return v, true
}

// Put adds v, which nobody else uses any more, unless l is full. It reports whether l has v.
func (l *FreeList[T]) Put(v T) (kept bool) {
	if len(*l) >= maxFree {
		return false
	}
	*l = append(*l, v)
	return true
}
