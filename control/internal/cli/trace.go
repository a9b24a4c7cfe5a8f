package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"
)

func (a *app) trace() *cobra.Command {
	packets, seconds, file := uint32(1000), uint32(10), "-"
	command := &cobra.Command{
		Use:   "trace [--PART VALUE]... [--packets N] [--seconds N] [-w FILE]",
		Short: "Capture packets as received and as sent, with their verdicts",
		Long: `Captures packets inside millrace, as pcapng: each matching packet as it was received and
as it was sent, with its verdict as a comment. PART is a part of the filter: protocol, source,
..., customer; a packet must match all the given parts. The trace ends after --packets or
--seconds, whichever comes first; Ctrl-C ends it sooner and leaves a valid capture.`,
		Example: `  millctl trace --source 198.51.100.7 -w trace.pcapng
  millctl trace --customer access.100 --packets 20 -w trace.pcapng
  millctl trace --protocol tcp --packets 20 | tshark -r -`,
		Args: cobra.NoArgs,
	}
	filter := filterFlags(command)
	command.Flags().Var(number{&packets}, "packets", "capture N packets at most")
	command.Flags().Var(number{&seconds}, "seconds", "capture for N seconds at most")
	command.Flags().VarP(text{&file, "FILE"}, "write", "w", "the file to write; - is standard output, which must not be a terminal")
	command.RunE = func(command *cobra.Command, _ []string) error {
		if _, is := terminal(a.out); is && file == "-" {
			return usage("standard output is a terminal, and a capture is not text: give -w FILE, or pipe the capture, as into tshark -r -")
		}
		query, err := filter()
		if err != nil {
			return err
		}
		query.Set("packets", strconv.FormatUint(uint64(packets), 10))
		query.Set("seconds", strconv.FormatUint(uint64(seconds), 10))
		body, err := a.client().Get(command.Context(), "/trace", query)
		if err != nil {
			return err
		}
		defer body.Close()
		return a.save(file, body)
	}
	return command
}

// save writes the capture to a file, or to standard output for "-". It is called only after millrace has
// accepted the request, so that a refused request leaves the file untouched.
func (a *app) save(path string, body io.Reader) error {
	if path == "-" {
		_, lost, err := copyBlocks(a.out, body)
		a.warnOf(lost)
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return unopenedFile{Err: err}
	}
	packets, lost, err := copyBlocks(file, body)
	if err := first(err, file.Close()); err != nil {
		return err
	}
	a.say("%s in %s", count(packets, "packet"), path)
	a.warnOf(lost)
	return nil
}

func (a *app) warnOf(lost uint64) {
	if lost > 0 {
		fmt.Fprintf(a.err, "millctl: warning: %s more matched, but came faster than millctl could read them, and are missing\n", count(lost, "packet"))
	}
}
