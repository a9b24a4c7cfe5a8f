package cli

import (
	"errors"
	"strconv"
	"time"
)

// text is a flag's value that must not be empty; kind is its name in the help.
type text struct {
	value *string
	kind  string
}

func (t text) String() string { return *t.value }
func (t text) Set(value string) error {
	if value == "" {
		return errors.New("the value is empty: give a value, or leave the option out")
	}
	*t.value = value
	return nil
}
func (t text) Type() string { return t.kind }

// number is a flag's value from 0 to 4294967295.
type number struct{ value *uint32 }

func (n number) String() string { return strconv.FormatUint(uint64(*n.value), 10) }
func (n number) Set(value string) error {
	read, err := strconv.ParseUint(value, 10, 32)
	if err != nil {
		return errors.New("give a number from 0 to 4294967295")
	}
	*n.value = uint32(read)
	return nil
}
func (n number) Type() string { return "N" }

// period is a flag's value, a time above 0. A number without a unit is in seconds.
type period struct{ value *time.Duration }

func (p period) String() string { return p.value.String() }
func (p period) Set(value string) error {
	read, err := time.ParseDuration(value)
	if _, noUnit := strconv.ParseFloat(value, 64); noUnit == nil {
		read, err = time.ParseDuration(value + "s")
	}
	if err != nil || read <= 0 {
		return errors.New("give a time above 0, as 1s or 500ms")
	}
	*p.value = read
	return nil
}
func (p period) Type() string { return "TIME" }
