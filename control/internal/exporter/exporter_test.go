package exporter

import (
	"flag"
	"io"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"millrace/control/internal/apitest"
	"millrace/control/internal/balance"
)

var update = flag.Bool("update", false, "write the golden file anew")

const configuredServices = `[{"service": "203.0.113.10:80/tcp", "port": 80, "health": null, "backends": [
	{"address": "10.0.0.1", "port": 8000, "weight": 2, "drained": false, "healthy": true},
	{"address": "10.0.0.2", "port": 0, "weight": 1, "drained": true, "healthy": false}]}]`

func serve(t *testing.T) *apitest.Server {
	t.Helper()
	stats, err := os.ReadFile("../cli/testdata/stats.json")
	if err != nil {
		t.Fatal(err)
	}
	server := apitest.New(t)
	server.On("GET /stats", apitest.Text(200, string(stats)))
	server.On("GET /services", apitest.Text(200, configuredServices))
	return server
}

func scrape(t *testing.T, socket string) string {
	t.Helper()
	answer := httptest.NewRecorder()
	Handler(balance.New(socket)).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.Code != 200 {
		t.Fatalf("%d %v\n%s", answer.Code, err, text)
	}
	return string(text)
}

func TestMetrics(t *testing.T) {
	got := scrape(t, serve(t).Socket)
	if *update {
		os.WriteFile("testdata/metrics.txt", []byte(got), 0o644)
	}
	want, err := os.ReadFile("testdata/metrics.txt")
	if err != nil || got != string(want) {
		t.Errorf("%v: got\n%s", err, got)
	}
}

func TestNamesAreAsPrometheusWantsThem(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(New(balance.New(serve(t).Socket)))
	problems, err := testutil.GatherAndLint(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Errorf("%s: %s", problem.Metric, problem.Text)
	}
}

func TestAway(t *testing.T) {
	server := apitest.New(t)
	server.On("GET /stats", apitest.Text(409, `{"error": "not now"}`))
	for _, socket := range []string{server.Socket, server.Socket + "-missing"} {
		want := "# HELP millrace_up Whether millrace answered.\n# TYPE millrace_up gauge\nmillrace_up 0\n"
		if got := scrape(t, socket); got != want {
			t.Errorf("%s", got)
		}
	}
}
