package health

// Streak turns single checks into a state: a backend falls after `fall` failures in a row, and rises
// after `rise` good checks in a row. It knows neither clock nor socket.
type Streak struct {
	Healthy  bool
	contrary int // checks in a row that speak against the state
}

// Observe takes one more check and answers whether the state has changed.
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
