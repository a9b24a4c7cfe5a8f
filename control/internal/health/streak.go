package health

// Streak turns the outcomes of checks into a state: a backend becomes unhealthy after `fall` failures in a
// row, and healthy after `rise` good checks in a row.
type Streak struct {
	Healthy  bool
	contrary int // number of the latest checks in a row that contradict the state
}

// Observe notes the outcome of another check, and returns true if the state has changed.
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
