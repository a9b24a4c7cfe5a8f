package balance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"millrace/control/internal/api"
)

// Client asks a millrace whose function is the load balancer. As api.Client, it may be used by several goroutines at
// once.
type Client struct{ *api.Client }

// New opens nothing yet: each request does.
func New(socket string) *Client { return &Client{api.New(socket)} }

// Stats is GET /stats.
func (c *Client) Stats(ctx context.Context) (stats Stats, err error) {
	err = c.Call(ctx, http.MethodGet, "/stats", nil, &stats)
	return stats, err
}

// Services is GET /services. A millrace without a load balancer has none: nil, where one without any has an empty list.
func (c *Client) Services(ctx context.Context) (services []Service, err error) {
	services = []Service{}
	err = c.Call(ctx, http.MethodGet, "/services", nil, &services)
	var refused *api.Refused
	if errors.As(err, &refused) && refused.Status == http.StatusNotFound {
		return nil, nil
	}
	return services, err
}

// Mark is POST /drain or POST /health, by name; it answers how many backends were meant.
func (c *Client) Mark(ctx context.Context, name, service, backend string, value bool) (int64, error) {
	query := url.Values{"backend": {backend}}
	if service != "" {
		query.Set("service", service)
	}
	key := map[string]string{"drain": "drained", "health": "healthy"}[name]
	query.Set(key, fmt.Sprint(value))
	var done struct{ Backends int64 }
	err := c.Call(ctx, http.MethodPost, "/"+name, query, &done)
	return done.Backends, err
}
