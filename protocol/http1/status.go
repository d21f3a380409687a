package http1

import "strconv"

// statusLines holds the status lines with the registered reason phrases (RFC
// 9110 section 15, RFC 6585, RFC 8297), indexed by status code minus 100. It is
// empty for codes that are not registered.
var statusLines = func() (t [500]string) {
	for code, reason := range reasons {
		t[code-100] = "HTTP/1.1 " + strconv.Itoa(code) + " " + reason + "\r\n"
	}
	return t
}()

var reasons = map[int]string{
	200: "OK", 201: "Created", 202: "Accepted", 203: "Non-Authoritative Information", 204: "No Content",
	205: "Reset Content", 206: "Partial Content", 207: "Multi-Status", 208: "Already Reported", 226: "IM Used",
	300: "Multiple Choices", 301: "Moved Permanently", 302: "Found", 303: "See Other", 304: "Not Modified",
	305: "Use Proxy", 307: "Temporary Redirect", 308: "Permanent Redirect",
	400: "Bad Request", 401: "Unauthorized", 402: "Payment Required", 403: "Forbidden", 404: "Not Found",
	405: "Method Not Allowed", 406: "Not Acceptable", 407: "Proxy Authentication Required", 408: "Request Timeout",
	409: "Conflict", 410: "Gone", 411: "Length Required", 412: "Precondition Failed", 413: "Content Too Large",
	414: "URI Too Long", 415: "Unsupported Media Type", 416: "Range Not Satisfiable", 417: "Expectation Failed",
	421: "Misdirected Request", 422: "Unprocessable Content", 423: "Locked", 424: "Failed Dependency",
	425: "Too Early", 426: "Upgrade Required", 428: "Precondition Required", 429: "Too Many Requests",
	431: "Request Header Fields Too Large", 451: "Unavailable For Legal Reasons",
	500: "Internal Server Error", 501: "Not Implemented", 502: "Bad Gateway", 503: "Service Unavailable",
	504: "Gateway Timeout", 505: "HTTP Version Not Supported", 506: "Variant Also Negotiates",
	507: "Insufficient Storage", 508: "Loop Detected", 511: "Network Authentication Required",
}

// reasonOffset is the offset of the reason phrase in a status line.
const reasonOffset = len("HTTP/1.1 200 ")

// appendStatusLine appends a status line. An empty reason becomes the registered
// one; the version is always HTTP/1.1 (RFC 9110 section 2.5).
func appendStatusLine(dst []byte, status int, reason []byte) []byte {
	line := statusLines[status-100]
	if line != "" && (len(reason) == 0 || line[reasonOffset:len(line)-2] == string(reason)) {
		return append(dst, line...)
	}
	dst = append(dst, "HTTP/1.1 "...)
	dst = strconv.AppendInt(dst, int64(status), 10)
	dst = append(dst, ' ')
	dst = append(dst, reason...)
	return append(dst, '\r', '\n')
}
