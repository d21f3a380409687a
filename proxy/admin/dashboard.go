package admin

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
)

//go:embed dashboard
var dashboardFiles embed.FS

// composeDashboard returns the page at /, with style and script in it. The page requests only /stats,
// /history and /milliseconds. composeDashboard also returns the policy that makes a browser run that style and script and
// nothing else, whatever gets into the page.
func composeDashboard() (page []byte, policy string) {
	style := dashboardFile("style.css")
	script := dashboardFile("charts.js") + dashboardFile("data.js") + dashboardFile("tables.js") + dashboardFile("main.js")
	page = []byte(strings.NewReplacer("{{style}}", style, "{{script}}", script).Replace(dashboardFile("page.html")))
	policy = fmt.Sprintf("default-src 'none'; connect-src 'self'; img-src data:; style-src %s; script-src %s; "+
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'", sourceHash(style), sourceHash(script))
	return page, policy
}

func dashboardFile(name string) string {
	text, err := dashboardFiles.ReadFile("dashboard/" + name)
	if err != nil {
		panic(err) // the file is embedded
	}
	return string(text)
}

// sourceHash returns the name of a text in a policy (Content Security Policy, section
// 2.3.1).
func sourceHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

func index(w http.ResponseWriter, _ *http.Request) {
	page, policy := composeDashboard() // few ask for it, so the sidecar does not keep it
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", policy)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(page)
}
