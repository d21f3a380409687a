// Package route finds the route of a request. It is pure: from the configuration it
// makes a list of plans and a table, which answers with the index of a plan. One table
// serves all loops.
//
//	plan.go   the plans, and which of them continue those of the generation before
//	match.go  the conditions of a route
//	table.go  the table
//	split.go  the shares of a route that leads to several services
//
// It knows no service: proxy/exchange makes the routes of the plans.
package route
