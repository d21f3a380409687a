// Package unwanted decides what becomes of an attempt that nobody awaits, at an application that speaks HTTP/1.1. Such
// an application learns that only if the connection closes, which costs a new connection.
//
// The decision compares the time that the application would work on with the time that a connection takes. The
// first is known from earlier attempts that nobody awaited, and that were left to finish: Work keeps the latest of
// them. One attempt in model.every is left to finish for that. A closed attempt counts as pending for as long as one
// of those took.
//
// An endpoint that is silent, such as a frozen one, keeps one attempt, whose response says that the silence is over.
// What is known of attempts at silent endpoints is kept apart. Where nothing is known yet, such an attempt is assumed
// to take twice the time that it has taken.
package unwanted
