package balance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"millrace/control/internal/api"
)

// Client sends requests to a millrace that has the function balance. Several goroutines may use it at once.
type Client struct{ *api.Client }

// New returns a client. Each of its requests opens a connection of its own.
func New(socket string) *Client { return &Client{api.New(socket)} }

// Stats is GET /stats.
func (c *Client) Stats(ctx context.Context) (stats Stats, err error) {
	err = c.Call(ctx, http.MethodGet, "/stats", nil, &stats)
	return stats, err
}

// Services is GET /services. It returns nil if millrace does not have the function balance, and an empty list if that
// function has no services.
func (c *Client) Services(ctx context.Context) (services []Service, err error) {
	services = []Service{}
	err = c.Call(ctx, http.MethodGet, "/services", nil, &services)
	var refused *api.Refused
	if errors.As(err, &refused) && refused.Status == http.StatusNotFound {
		return nil, nil
	}
	return services, err
}

// Mark is POST /drain if name is "drain", and POST /health if it is "health". It sets "drained" or "healthy" of a backend
// to `value`, in the given service or, if `service` is empty, in all services. It returns the number of services in which
// it did so.
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
