package bench

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestObserver(t *testing.T) {
	scraped := make(chan struct{}, 100)
	sidecar := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			scraped <- struct{}{}
		}
	}))
	defer sidecar.Close()
	var none *observer
	if err := none.check(t.Context()); err != nil {
		t.Errorf("without an observer: %v", err)
	}
	none.close()
	o, err := newObserver()
	if err != nil {
		t.Fatal(err)
	}
	defer o.close()
	o.scrape(sidecar.URL + "/metrics")
	<-scraped
	<-scraped // the first scrape has been counted
	if err := o.check(t.Context()); err != nil {
		t.Errorf("nothing exports spans: %v", err)
	}
	o.traced = true
	if err := o.check(t.Context()); err == nil {
		t.Error("without a span: no error")
	}
	if _, err := http.Post("http://"+o.addr+"/v1/traces", "application/x-protobuf", strings.NewReader("spans")); err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	if err := o.check(t.Context()); err != nil {
		t.Error(err)
	}
}
