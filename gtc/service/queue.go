package service

import "sync"

// queues hold what is to be asked of each cluster, and ask it by so many workers
// at a time. A coordinator that has just started ends all that was decided
// before at once: a goroutine for each that waits for its turn would cost more,
// in stacks that grow, than the whole way of an EndTxn through this process.
type queues struct {
	workers int
	spawn   func(func())
	mu      sync.Mutex
	of      map[string]*queue // of clusters for which there is something to do
}

type queue struct {
	waiting []func()
	workers int
}

// put calls f when those before it, for the same cluster, have begun.
func (q *queues) put(clusterID string, f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.of[clusterID]
	if c == nil {
		c = &queue{}
		q.of[clusterID] = c
	}
	c.waiting = append(c.waiting, f)
	if c.workers < q.workers {
		c.workers++
		q.spawn(func() { q.work(clusterID, c) })
	}
}

func (q *queues) work(clusterID string, c *queue) {
	for f := q.next(clusterID, c); f != nil; f = q.next(clusterID, c) {
		f()
	}
}

// next is what is to be done now; nil ends the worker.
func (q *queues) next(clusterID string, c *queue) func() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(c.waiting) == 0 {
		if c.workers--; c.workers == 0 {
			delete(q.of, clusterID)
		}
		return nil
	}
	f := c.waiting[0]
	c.waiting[0] = nil // it holds a term
	c.waiting = c.waiting[1:]
	return f
}
