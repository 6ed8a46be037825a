package participant

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

func TestAGathererSharesWhatComesWhileOneIsInFlight(t *testing.T) {
	const keys, limit = 100, 60
	started, release := make(chan struct{}), make(chan struct{})
	var runs [][]int
	g := &gatherer[int, int]{timeout: time.Minute, limit: limit}
	g.run = func(_ context.Context, ks []int) map[int]int {
		runs = append(runs, ks) // one at a time, so no lock
		if len(runs) == 1 {
			close(started)
			<-release
		}
		out := make(map[int]int)
		for _, k := range ks {
			out[k] = k * k
		}
		return out
	}
	var wg sync.WaitGroup
	ask := func(k int) {
		if got, err := g.do(t.Context(), k); err != nil || got != k*k {
			t.Errorf("%d: %d, %v", k, got, err)
		}
	}
	wg.Go(func() { ask(0) }) // leaves at once
	<-started
	for k := 1; k < keys; k++ {
		wg.Go(func() { ask(k) })
	}
	wg.Go(func() { ask(0) }) // asked after the first left: asked anew
	waiting := func() (n int) {
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, b := range g.waiting {
			n += len(b.keys)
		}
		return n
	}
	eventually(t, func() bool { return waiting() == keys })
	close(release)
	wg.Wait()
	if len(runs) != 3 || len(runs[0]) != 1 || len(runs[1]) != limit || len(runs[2]) != keys-limit {
		t.Errorf("%d requests, want one of 1, one of %d and one of %d", len(runs), limit, keys-limit)
	}
}

// Who gives up takes nobody's answer with them: two share a request, one of
// them leaves before it is answered.
func TestACallerThatGivesUpLeavesTheOthersTheirAnswer(t *testing.T) {
	started, release := make(chan int, 2), make(chan struct{})
	g := &gatherer[string, string]{timeout: time.Minute, limit: 10}
	g.run = func(ctx context.Context, keys []string) map[string]string {
		started <- len(keys)
		select {
		case <-release:
			return map[string]string{"first": "1", "left": "2", "stayed": "3"}
		case <-ctx.Done():
			return nil
		}
	}
	var wg sync.WaitGroup
	ask := func(ctx context.Context, key, want string, wantErr error) {
		if got, err := g.do(ctx, key); got != want || !errors.Is(err, wantErr) {
			t.Errorf("%s: %q, %v; want %q, %v", key, got, err, want, wantErr)
		}
	}
	wg.Go(func() { ask(t.Context(), "first", "1", nil) })
	<-started
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan struct{})
	wg.Go(func() { ask(ctx, "left", "", context.Canceled); close(left) })
	wg.Go(func() { ask(t.Context(), "stayed", "3", nil) })
	eventually(t, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.waiting) == 1 && len(g.waiting[0].keys) == 2
	})
	cancel()
	<-left
	close(release)
	wg.Wait()
	if n := <-started; n != 2 {
		t.Errorf("the second request was for %d keys, want 2", n)
	}
}

// A cluster that is away: everybody who asks gives up after a while and asks
// again. What waits for the connection must not grow with them.
func TestAskingInVainLeavesNothingBehind(t *testing.T) {
	started, release := make(chan struct{}, 2), make(chan struct{})
	g := &gatherer[struct{}, int]{timeout: time.Minute, limit: 1}
	g.run = func(context.Context, []struct{}) map[struct{}]int {
		started <- struct{}{}
		<-release
		return map[struct{}]int{{}: 1}
	}
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = g.do(t.Context(), struct{}{}) })
	<-started
	gaveUp, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		if _, err := g.do(gaveUp, struct{}{}); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	g.mu.Lock()
	if n := len(g.waiting); n != 1 {
		t.Errorf("%d requests wait, want 1", n)
	}
	g.mu.Unlock()
	close(release)
	wg.Wait()
}
