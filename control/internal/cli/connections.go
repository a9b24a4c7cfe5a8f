package cli

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"strconv"

	"github.com/spf13/cobra"

	"millrace/control/internal/api"
	"millrace/control/internal/conntrack"
)

// listFormats has a function for each format. The function writes the list while it arrives, and holds back few rows.
var listFormats = map[string]func(io.Writer, io.Reader) error{
	"table":     listTable,
	"json":      listJSON,
	"conntrack": listConntrack,
}

func (a *app) connections() *cobra.Command {
	format := "table"
	command := &cobra.Command{
		Use:   "connections [--PART VALUE]... [--format table|json|conntrack]",
		Short: "List the live connections, all or some of them",
		Long: `Lists the live connections while millrace visits its tables: a connection that begins, ends
or moves to another worker meanwhile may be missing, or be listed twice. PART is a part
of the filter: protocol, source, ..., customer. A connection is listed if it matches all
the given parts. Source and destination are those of the originator's packets as they come;
with NAT "public" is the source with which they leave, "inside" the end that they go to.

Formats: table; json, with an object on each line; conntrack, the format in which
"conntrack -L" lists the kernel's connections.`,
		Example: `  millctl connections --source 198.51.100.0/24 --protocol tcp
  millctl connections --backend 10.0.0.1:8000 --format json | wc -l
  millctl connections --customer 172.17.0.9 --protocol udp
  millctl connections --format conntrack | grep UNREPLIED`,
		Args: cobra.NoArgs,
	}
	filter := filterFlags(command)
	command.Flags().Var(text{&format, "FORMAT"}, "format", "table, json or conntrack")
	command.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(
		[]string{"table", "json", "conntrack"}, cobra.ShellCompDirectiveNoFileComp))
	command.RunE = func(command *cobra.Command, _ []string) error {
		write, known := listFormats[format]
		if !known {
			return usage("--format %s is unknown: give table, json or conntrack", format)
		}
		query, err := filter()
		if err != nil {
			return err
		}
		body, err := a.client().Get(command.Context(), "/connections", query)
		if err != nil {
			return err
		}
		defer body.Close()
		return write(a.out, body)
	}
	return command
}

func listJSON(out io.Writer, body io.Reader) error {
	_, err := io.Copy(out, body)
	return brokeOff(err)
}

func listConntrack(out io.Writer, body io.Reader) error {
	lines := bufio.NewWriter(out)
	err := api.EachConnection(body, func(c *api.Connection) error {
		_, err := lines.WriteString(conntrack.Line(c) + "\n")
		return err
	})
	return first(err, lines.Flush())
}

// lateColumns are the columns of the table that only some functions fill. A column appears with the first connection that has a
// value for it: a function that fills one mostly does so for its first connection.
var lateColumns = []struct {
	head string
	of   func(*api.Connection) string
}{
	{"backend", func(c *api.Connection) string { return c.Backend }},
	{"rule", func(c *api.Connection) string { return c.Rule }},
	{"public", publicEnd},
	{"inside", insideEnd},
	{"customer", func(c *api.Connection) string { return c.Customer }},
}

// publicEnd returns the end with which the originator's packets leave, if NAT has given them another one.
func publicEnd(c *api.Connection) string {
	if to := c.Reply().Destination; to.IsValid() && to != c.Original().Source {
		return end(to)
	}
	return ""
}

// insideEnd returns the end that the originator's packets go to, if that is another one and no backend.
func insideEnd(c *api.Connection) string {
	if from := c.Reply().Source; c.Backend == "" && from.IsValid() && from != c.Original().Destination {
		return end(from)
	}
	return ""
}

func listTable(out io.Writer, body io.Reader) error {
	t := newTable(out, "", "protocol", "source", "destination", "state", ">idle", ">expires in", ">worker")
	shown := []int{} // of lateColumns, in the order in which they have appeared
	isShown := make([]bool, len(lateColumns))
	err := api.EachConnection(body, func(c *api.Connection) error {
		for n, column := range lateColumns {
			if isShown[n] || column.of(c) == "" {
				continue
			}
			isShown[n] = true
			shown = append(shown, n)
			if err := t.widen(column.head); err != nil {
				return err
			}
		}
		expires := "never"
		if c.ExpiresMs != nil {
			expires = seconds(*c.ExpiresMs)
		}
		tuple := c.Original()
		cells := []string{c.Protocol, end(tuple.Source), end(tuple.Destination), c.State, seconds(c.IdleMs), expires, strconv.Itoa(c.Worker)}
		for _, n := range shown {
			value := lateColumns[n].of(c)
			cells = append(cells, orDash(&value))
		}
		return t.row(cells...)
	})
	return first(err, t.flush())
}

// end returns an address with its port, or the address alone if the port is 0.
func end(of netip.AddrPort) string {
	if of.Port() == 0 {
		return of.Addr().String()
	}
	return of.String()
}

func brokeOff(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the answer broke off: %w", err)
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
