package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// grouped returns a number with commas: "1,234,567".
func grouped(n uint64) string {
	digits := strconv.FormatUint(n, 10)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// share returns a part of the whole in per cent, or "" if the whole is 0.
func share(part, whole uint64) string {
	if whole == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
}

// count returns a number with its noun: "1 backend", "2 backends".
func count(n uint64, what string) string {
	if n != 1 && strings.HasSuffix(what, "x") {
		what += "es"
	} else if n != 1 {
		what += "s"
	}
	return grouped(n) + " " + what
}

// seconds returns a time in milliseconds as "7.4 s", and from ten minutes on as "2h4m0s".
func seconds(ms uint64) string {
	if ms < 600_000 {
		return fmt.Sprintf("%.1f s", float64(ms)/1000)
	}
	return (time.Duration(ms) * time.Millisecond).Round(time.Second).String()
}

// orDash returns the text, or "-" if it is nil or empty.
func orDash(text *string) string {
	if text == nil || *text == "" {
		return "-"
	}
	return *text
}

func yes(is bool, text string) string {
	if is {
		return text
	}
	return ""
}
