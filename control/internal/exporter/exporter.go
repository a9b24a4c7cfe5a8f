// Package exporter serves millrace's statistics to Prometheus. metrics.go has the list of metrics.
package exporter

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"millrace/control/internal/balance"
	"millrace/control/internal/firewall"
	"millrace/control/internal/nat"
)

// patience is how long a scrape waits for millrace; Prometheus itself waits 10 s by default.
const patience = 5 * time.Second

// Collector reads millrace's statistics at each scrape. Several goroutines may scrape it at once.
type Collector struct {
	client *balance.Client
}

// New returns a collector that asks millrace by the client.
func New(client *balance.Client) *Collector { return &Collector{client} }

// Handler returns a handler that serves the metrics of one millrace at /metrics.
func Handler(client *balance.Client) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(New(client))
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
}

// Describe sends the descriptions of all metrics.
func (c *Collector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, m := range metrics {
		descriptions <- m.description
	}
}

// Collect reads the statistics and sends all metrics; only millrace_up if millrace does not answer.
func (c *Collector) Collect(values chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	seen := c.look(ctx)
	for _, m := range metrics {
		m.collect(seen, values)
	}
}

// state is millrace's answer to one scrape; zero if millrace did not answer.
type state struct {
	up       bool
	stats    statistics
	services []balance.Service
}

// statistics is the answer to GET /stats, with the parts of all functions.
type statistics struct {
	balance.Stats
	Rules []firewall.Rule `json:"firewall_rules"`
	Pools []nat.Pool      `json:"nat_pools"`
	Logs  []nat.Log       `json:"nat_log"`
}

func (c *Collector) look(ctx context.Context) state {
	var stats statistics
	if err := c.client.Call(ctx, http.MethodGet, "/stats", nil, &stats); err != nil {
		return state{}
	}
	services, err := c.client.Services(ctx)
	if err != nil {
		return state{}
	}
	return state{true, stats, services}
}

// add sends one value of a metric, with its labels in their order.
type add func(value float64, labels ...string)

type metric struct {
	description *prometheus.Desc
	kind        prometheus.ValueType
	read        func(state, add)
	always      bool // sent also if millrace did not answer
}

// collect sends the values of the metric. No two values have the same labels, since no two services, ports
// or backends of a service have the same name in millrace.
func (m *metric) collect(seen state, values chan<- prometheus.Metric) {
	if !seen.up && !m.always {
		return
	}
	m.read(seen, func(value float64, labels ...string) {
		values <- prometheus.MustNewConstMetric(m.description, m.kind, value, labels...)
	})
}
