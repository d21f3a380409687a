package session

import "strconv"

// Code is an error that the server responds with.
type Code int32

// Codes that callers handle. The numbers are those of KeeperException.Code.
const (
	NoNode     Code = -101
	NoAuth     Code = -102
	BadVersion Code = -103
	NodeExists Code = -110
	Expired    Code = -112
	AuthFailed Code = -115
	NoLogin    Code = -124 // the server takes requests only after authentication
)

var codeNames = map[Code]string{
	-1: "system error", -2: "runtime inconsistency", -3: "data inconsistency", -4: "connection loss", -5: "marshalling error",
	-6: "unimplemented", -7: "operation timeout", -8: "bad arguments",
	NoNode: "no such node", NoAuth: "not allowed", BadVersion: "the node has changed", -108: "ephemeral nodes have no children",
	NodeExists: "the node exists", -111: "the node has children", Expired: "the session has ended", -114: "invalid ACL",
	AuthFailed: "authentication failed", -118: "the session moved", -119: "the server takes only reads",
	NoLogin: "authentication required", -125: "over quota",
}

// EndsConnection reports whether the server closes the connection after a response with this code.
func (c Code) EndsConnection() bool { return c == Expired || c == AuthFailed || c == NoLogin }

// Error implements error.
func (c Code) Error() string {
	if name := codeNames[c]; name != "" {
		return "zookeeper: " + name
	}
	return "zookeeper: error " + strconv.Itoa(int(c))
}
