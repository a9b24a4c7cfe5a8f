// Package exporter gives millrace's statistics to Prometheus. metrics.go is the list of what there is.
package exporter

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"millrace/control/internal/balance"
)

// A scrape waits so long for millrace; Prometheus itself waits 10 s unless it is told otherwise.
const patience = 5 * time.Second

// Collector asks millrace whenever it is scraped. It may be scraped by several at once.
type Collector struct {
	client *balance.Client
}

// New is a collector of what the client sees.
func New(client *balance.Client) *Collector { return &Collector{client} }

// Handler serves the metrics of one millrace at /metrics.
func Handler(client *balance.Client) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(New(client))
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
}

// Describe names all metrics.
func (c *Collector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, m := range metrics {
		descriptions <- m.description
	}
}

// Collect reads them, now. Where millrace does not answer there is only millrace_up.
func (c *Collector) Collect(values chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	seen := c.look(ctx)
	for _, m := range metrics {
		m.collect(seen, values)
	}
}

// state is what one scrape has seen; zero where millrace did not answer.
type state struct {
	up       bool
	stats    balance.Stats
	services []balance.Service
}

func (c *Collector) look(ctx context.Context) state {
	stats, err := c.client.Stats(ctx)
	if err != nil {
		return state{}
	}
	services, err := c.client.Services(ctx)
	if err != nil {
		return state{}
	}
	return state{true, stats, services}
}

// add gives one value, with the metric's labels in their order.
type add func(value float64, labels ...string)

type metric struct {
	description *prometheus.Desc
	kind        prometheus.ValueType
	read        func(state, add)
	always      bool // also where millrace did not answer
}

// collect gives the values as they are read: no two have the same labels, as millrace names neither a
// service nor a port twice, nor a backend within its service.
func (m *metric) collect(seen state, values chan<- prometheus.Metric) {
	if !seen.up && !m.always {
		return
	}
	m.read(seen, func(value float64, labels ...string) {
		values <- prometheus.MustNewConstMetric(m.description, m.kind, value, labels...)
	})
}
