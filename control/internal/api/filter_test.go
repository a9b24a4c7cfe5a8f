package api

import (
	"os"
	"strings"
	"testing"
)

// The states must be those of src/conntrack/connection_state.h. There some names stand twice in a row.
func TestStatesAreMillraces(t *testing.T) {
	text, err := os.ReadFile("../../../src/conntrack/connection_state.h")
	if err != nil {
		t.Skip(err) // control/ was copied without src/, which has the names to compare with
	}
	_, list, _ := strings.Cut(string(text), "kConnectionStateNames{")
	list, _, _ = strings.Cut(list, "}")
	var want []string
	for i, name := range strings.Split(list, `"`) {
		if i%2 == 1 && name != "none" && (len(want) == 0 || want[len(want)-1] != name) {
			want = append(want, name)
		}
	}
	if got := strings.Join(States, " "); got != strings.Join(want, " ") {
		t.Errorf("%s\nmillrace has\n%s", got, strings.Join(want, " "))
	}
}
