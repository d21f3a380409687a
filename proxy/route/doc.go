// Package route finds the route of a request. It is pure: it makes a list of plans and a table
// of the configuration, and the table returns the index of a plan. One table serves all loops.
//
//	plan.go     Plan, and which plans continue those of the previous generation
//	path.go     PathRules, which bring paths into one form before a route is looked for
//	host.go     which routes take requests to a host
//	table.go    Table, which finds the first route that matches
//	match.go    the conditions of a route
//	value.go    conditions on headers and on parameters of the query
//	explain.go  which conditions a request meets, for people
//	split.go    the targets of a route that leads to several services
//	rewrite.go  Rewrite, which replaces the prefix that matched
//	answer.go   Answer, the response of a route that leads to no service
//	edits.go    Edits, which change headers
//
// It knows no service: proxy/exchange makes the routes of the plans.
package route
