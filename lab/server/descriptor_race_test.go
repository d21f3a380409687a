//go:build race

package server

import (
	"errors"
	"testing"
)

// TestRenumbered opens and closes connections while all low numbers are taken, and at the limit of
// descriptors.
func TestRenumbered(t *testing.T) {
	const taken, limit = firstNumber + 1000, firstNumber + 1500
	closed := map[int]int{} // number: the turn in which it was closed
	for turn := range 2000 {
		fd, err := renumbered(func(least int) (int, error) {
			if least > limit {
				return 0, errors.New("beyond the limit")
			}
			return max(least, taken), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if last, ok := closed[fd]; ok && turn-last <= limit-taken {
			t.Fatalf("number %d is given %d turns after it was closed", fd, turn-last)
		}
		closed[fd] = turn
	}
}
