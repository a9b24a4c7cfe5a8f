package cli

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"millrace/control/internal/exporter"
)

func (a *app) exporter() *cobra.Command {
	listen := "127.0.0.1:9645"
	command := &cobra.Command{
		Use:   "exporter [--listen ADDRESS:PORT]",
		Short: "Serve the statistics to Prometheus",
		Long: `Serves millrace's statistics at /metrics, for Prometheus. They are read at each scrape;
while millrace does not answer, the only metric is millrace_up 0. Runs until it is interrupted.`,
		Example: `  millctl exporter --listen '[::]:9645'
  curl http://127.0.0.1:9645/metrics`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			listener, err := net.Listen("tcp", listen)
			if err != nil {
				return err
			}
			a.say("http://%s/metrics", listener.Addr())
			return serve(command.Context(), listener, exporter.Handler(a.client()))
		},
	}
	command.Flags().Var(text{&listen, "ADDRESS:PORT"}, "listen", "address and port to serve at")
	return command
}

func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		server.Close()
	}()
	return server.Serve(listener)
}
