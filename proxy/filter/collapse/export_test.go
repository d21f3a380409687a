package collapse

// SetMaxWaiting replaces the bound of requests that wait until the returned function is called.
func SetMaxWaiting(n int) (undo func()) {
	old := maxWaiting
	maxWaiting = n
	return func() { maxWaiting = old }
}
