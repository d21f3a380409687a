// Package overload compares what the process uses of its resources with their limits, and
// decides when it is overloaded. One goroutine does so, at most four times a second, so requests pay
// nothing for it.
//
//	Normal     below 85% of each limit
//	Shedding   idle connections are closed, those of the source that holds the most first
//	Refusing   from 95%: new connections are refused as well, except those of known peers
//
// A state is left 5% below the share at which it was entered. The resource that is used most
// decides.
package overload
