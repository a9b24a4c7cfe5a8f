package health

// Streak turns the outcomes of checks into a state: a backend falls after `fall` failures in a row, and
// rises after `rise` good checks in a row.
type Streak struct {
	Healthy  bool
	contrary int // the latest checks in a row that contradict the state
}

// Observe takes the outcome of one more check, and returns true if the state has changed.
func (s *Streak) Observe(good bool, rise, fall int) (changed bool) {
	if good == s.Healthy {
		s.contrary = 0
		return false
	}
	s.contrary++
	needed := fall
	if good {
		needed = rise
	}
	if s.contrary < needed {
		return false
	}
	s.Healthy, s.contrary = good, 0
	return true
}
