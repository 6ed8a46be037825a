package sim

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// seenSet holds the hashes of the worlds that were seen: open addressing in
// shards of their own locks, eight bytes and some room for each.
type seenSet struct {
	seed   maphash.Seed
	size   atomic.Int64
	shards [64]seenShard
}

type seenShard struct {
	mu    sync.Mutex
	slots []uint64 // 0 is free
	used  int
}

func newSeenSet() *seenSet { return &seenSet{seed: maphash.MakeSeed()} }

func (s *seenSet) len() int64 { return s.size.Load() }

// add reports whether the encoding was new.
func (s *seenSet) add(encoding []byte) bool {
	h := maphash.Bytes(s.seed, encoding) | 1 // not 0
	sh := &s.shards[h>>58]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if 4*(sh.used+1) > 3*len(sh.slots) {
		sh.grow()
	}
	if !sh.put(h) {
		return false
	}
	sh.used++
	s.size.Add(1)
	return true
}

func (sh *seenShard) put(h uint64) bool {
	mask := uint64(len(sh.slots) - 1)
	for i := h >> 1 & mask; ; i = (i + 1) & mask {
		switch sh.slots[i] {
		case h:
			return false
		case 0:
			sh.slots[i] = h
			return true
		}
	}
}

func (sh *seenShard) grow() {
	old := sh.slots
	sh.slots = make([]uint64, max(1024, 2*len(old)))
	for _, h := range old {
		if h != 0 {
			sh.put(h)
		}
	}
}
