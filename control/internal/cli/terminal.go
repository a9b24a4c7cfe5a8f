package cli

import (
	"io"
	"os"

	"golang.org/x/term"
)

// terminal returns the file behind a writer, and true if that is a terminal.
func terminal(writer io.Writer) (*os.File, bool) {
	if s, ok := writer.(*sink); ok {
		writer = s.Writer
	}
	file, ok := writer.(*os.File)
	return file, ok && term.IsTerminal(int(file.Fd()))
}

// style makes text bold if the writer is a terminal, NO_COLOR is not set and TERM is not "dumb".
type style struct{ on bool }

func styleOf(writer io.Writer) style {
	_, is := terminal(writer)
	return style{is && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func (s style) bold(text string) string {
	if !s.on {
		return text
	}
	return "\x1b[1m" + text + "\x1b[0m"
}
