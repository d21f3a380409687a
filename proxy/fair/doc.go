// Package fair divides what is bounded among those who ask for it. A source that holds more
// than the others gives way to them, so nobody can keep all of it.
package fair
