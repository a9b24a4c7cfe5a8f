package simulation

import (
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// fromEnvironment returns the number in a variable of the environment.
func fromEnvironment(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	given := os.Getenv(name)
	if given == "" {
		return otherwise
	}
	number, err := strconv.ParseUint(given, 10, 64)
	if err != nil {
		t.Fatalf("%s is %q: must be a number", name, given)
	}
	return number
}

func firstSeed(t *testing.T) uint64 {
	seed := fromEnvironment(t, "MILLRACE_CLUSTER_SEED", rand.Uint64())
	t.Logf("the first seed is %d: MILLRACE_CLUSTER_SEED repeats it", seed)
	return seed
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// MILLRACE_CLUSTER_STEPS are the ticks to simulate in all.
func TestRules(t *testing.T) {
	const seeds = 20
	steps := fromEnvironment(t, "MILLRACE_CLUSTER_STEPS", 200_000)
	first := firstSeed(t)
	for seed := first; seed < first+seeds; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(seed, None, quiet)
			if wrong := w.run(int(steps / seeds)); wrong != "" {
				t.Error(wrong)
			}
			if w.served == 0 || w.promotions == 0 {
				t.Errorf("%d packets were served, with %d promotions", w.served, w.promotions)
			}
			t.Logf("%d ticks, %d packets, %d promotions, %d of them by plan, %d writes", w.now, w.served, w.promotions, w.swaps, w.writes)
		})
	}
}

func TestMistakesAreFound(t *testing.T) {
	first := firstSeed(t)
	for mistake := None + 1; mistake < Mistakes; mistake++ {
		t.Run(mistake.String(), func(t *testing.T) {
			for seed := first; seed < first+100; seed++ {
				if wrong := newWorld(seed, mistake, quiet).run(20_000); wrong != "" {
					t.Logf("found with seed %d: %s", seed-first+1, wrong)
					return
				}
			}
			t.Error("not found with 100 seeds")
		})
	}
}
