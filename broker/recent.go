package broker

import "sync"

// recent remembers what can be asked for again. When it is full it forgets all,
// so that no number of names makes it grow. The zero value is empty.
type recent[K comparable, V any] struct {
	mu sync.Mutex
	of map[K]V
}

// recentEntries bounds what a recent remembers: some megabytes at most.
const recentEntries = 20_000

func (r *recent[K, V]) get(key K) (V, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok := r.of[key]
	return v, ok
}

func (r *recent[K, V]) put(key K, v V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.of) >= recentEntries {
		clear(r.of)
	}
	if r.of == nil {
		r.of = make(map[K]V)
	}
	r.of[key] = v
}
