package records

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// GrantCount is how many grants a shard has: all port numbers, 1024 to a grant.
const GrantCount = 64

// Grant says which member has a grant: a set of ports of the shard. A grant waits for the shard's master if its last holder did not make it free.
type Grant struct {
	Holder Member
	Waits  bool
}

// Grants are those that are not free, by number. In JSON they are by holder, since a shard may have thousands: {"7.3": "0-11,15", "waits": "12"}.
type Grants map[uint32]Grant

const waiting = "waits"

// MarshalJSON returns ranges of numbers by holder.
func (g Grants) MarshalJSON() ([]byte, error) {
	numbers := map[string][]uint32{}
	for _, number := range slices.Sorted(maps.Keys(g)) {
		holder := waiting
		if !g[number].Waits {
			holder = g[number].Holder.String()
		}
		numbers[holder] = append(numbers[holder], number)
	}
	texts := map[string]string{}
	for holder, of := range numbers {
		texts[holder] = Ranges(of)
	}
	return json.Marshal(texts)
}

// Ranges returns sorted numbers as text, such as 0-11,15.
func Ranges(numbers []uint32) string {
	var texts []string
	for begin := 0; begin < len(numbers); {
		end := begin + 1
		for end < len(numbers) && numbers[end] == numbers[end-1]+1 {
			end++
		}
		text := strconv.FormatUint(uint64(numbers[begin]), 10)
		if end > begin+1 {
			text += "-" + strconv.FormatUint(uint64(numbers[end-1]), 10)
		}
		texts = append(texts, text)
		begin = end
	}
	return strings.Join(texts, ",")
}

// UnmarshalJSON reads what MarshalJSON returns.
func (g *Grants) UnmarshalJSON(bytes []byte) error {
	var texts map[string]string
	if err := json.Unmarshal(bytes, &texts); err != nil {
		return err
	}
	*g = Grants{}
	for holder, text := range texts {
		grant := Grant{Waits: holder == waiting}
		if !grant.Waits {
			if err := grant.Holder.UnmarshalText([]byte(holder)); err != nil {
				return err
			}
		}
		if err := g.read(text, grant); err != nil {
			return err
		}
	}
	return nil
}

func (g Grants) read(text string, grant Grant) error {
	numbers, err := ParseRanges(text)
	if err == nil && len(numbers) == 0 {
		err = errors.New("a holder without grants")
	}
	for _, number := range numbers {
		if other, is := g[number]; is && other != grant {
			return fmt.Errorf("grant %d has two holders", number)
		}
		g[number] = grant
	}
	return err
}

// ParseRanges reads what Ranges returns.
func ParseRanges(text string) (numbers []uint32, err error) {
	if text == "" {
		return nil, nil
	}
	for _, part := range strings.Split(text, ",") {
		begin, end, isRange := strings.Cut(part, "-")
		if !isRange {
			end = begin
		}
		first, errFirst := strconv.ParseUint(begin, 10, 32)
		last, errLast := strconv.ParseUint(end, 10, 32)
		if errFirst != nil || errLast != nil || first > last || last-first >= mostGrants {
			return nil, fmt.Errorf("grants %q: must be numbers and ranges, such as 0-11,15", text)
		}
		for number := first; number <= last; number++ {
			numbers = append(numbers, uint32(number))
		}
	}
	return numbers, nil
}

// mostGrants bounds a range: 256 addresses have no more ports.
const mostGrants = 1 << 24
