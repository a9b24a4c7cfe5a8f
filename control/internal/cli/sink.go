package cli

import "io"

// sink remembers that something was not written: results that got lost are a failure, whoever wrote
// them.
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
