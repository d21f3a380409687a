// Package route finds the route of a request. It is pure: it makes a list of plans and a table
// of the configuration, and the table returns the index of a plan. One table serves all loops.
//
//	plan.go   Plan, and which plans continue those of the previous generation
//	table.go  Table, which finds the first route that matches
//	match.go  the conditions of a route
//	split.go  the targets of a route that leads to several services
//
// It knows no service: proxy/exchange makes the routes of the plans.
package route
