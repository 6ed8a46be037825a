package participant

import (
	"context"
	"sync"
	"time"
)

// A gatherer lets concurrent questions of one kind share requests. While one
// request is in flight, the questions that arrive are collected for the next;
// a question that finds none in flight leaves at once, so nothing is ever
// delayed to wait for company.
//
// A question is answered by a request that left after the question was asked:
// a look that was under way before may have missed what the caller did since.
type gatherer[K comparable, V any] struct {
	// run answers all keys. It must return within ctx.
	run     func(ctx context.Context, keys []K) map[K]V
	timeout time.Duration
	limit   int // most keys of one request

	mu      sync.Mutex
	waiting []*batch[K, V] // the last one still fills
	running bool
}

type batch[K comparable, V any] struct {
	keys    []K
	has     map[K]struct{}
	done    chan struct{}
	answers map[K]V // after done
}

// do asks for one key. The error is ctx's; an answer that run did not give is
// the zero value of V.
func (g *gatherer[K, V]) do(ctx context.Context, key K) (V, error) {
	b := g.join(key)
	select {
	case <-b.done:
		return b.answers[key], nil
	case <-ctx.Done():
		var zero V
		return zero, ctx.Err()
	}
}

func (g *gatherer[K, V]) join(key K) *batch[K, V] {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := g.lastWith(key)
	if b == nil {
		b = &batch[K, V]{has: make(map[K]struct{}), done: make(chan struct{})}
		g.waiting = append(g.waiting, b)
	}
	if _, dup := b.has[key]; !dup {
		b.has[key] = struct{}{}
		b.keys = append(b.keys, key)
	}
	if !g.running {
		g.running = true
		go g.drain()
	}
	return b
}

// lastWith is the last batch that waits, if the key is in it or has room. A full
// one serves who asks for a key of it: else, with room for one key, everybody who
// asks while a cluster is away would leave a batch behind, to be run in vain when
// he has long given up.
func (g *gatherer[K, V]) lastWith(key K) *batch[K, V] {
	n := len(g.waiting)
	if n == 0 {
		return nil
	}
	b := g.waiting[n-1]
	if _, dup := b.has[key]; !dup && len(b.keys) >= g.limit {
		return nil
	}
	return b
}

// drain runs batches until none waits. The request is not any caller's own:
// one that gives up must not take the others' answer with it.
func (g *gatherer[K, V]) drain() {
	for {
		g.mu.Lock()
		if len(g.waiting) == 0 {
			g.running = false
			g.mu.Unlock()
			return
		}
		b := g.waiting[0]
		g.waiting = g.waiting[1:]
		g.mu.Unlock()

		ctx, cancel := context.WithTimeout(context.Background(), g.timeout)
		b.answers = g.run(ctx, b.keys)
		cancel()
		close(b.done)
	}
}
