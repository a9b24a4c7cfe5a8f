package cli

import "io"

// sink keeps the first error of writing, so that Run returns a failure if any output was lost.
type sink struct {
	io.Writer
	lost error
}

func (s *sink) Write(text []byte) (int, error) {
	n, err := s.Writer.Write(text)
	if err != nil && s.lost == nil {
		s.lost = err
	}
	return n, err
}
