// Command mutate measures whether tests notice faults. It makes one small change to the code at a time, such as < for <=,
// and runs the tests of the changed package. A change that no test notices has survived.
//
//	changes.go     the places of a file that can change, and how
//	copies.go      many changes in one source: a copy of a function for each
//	build.go       the test binaries with the copies, without touching a file
//	binary.go      one test binary: its tests, what they take, and which functions they call
//	try.go         one change: which tests run, and what they say
//	execute.go     a command with limits
//	log.go         what earlier runs found, so that a run can go on where another has ended
//	equivalent.go  changes that can't be noticed, because the program does the same: equivalent.txt
//	main.go        which packages, how many changes, and the table
//
// Changes are made in functions, and not to lines that log, or to what is returned beside an error. Of each package a run tries
// the same changes for the same seed.
package main
