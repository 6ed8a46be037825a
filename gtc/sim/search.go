package sim

import (
	"runtime"
	"slices"
	"sync"
)

// Search goes through every world that a configuration can lead to.
//
// What it leaves out, and why nothing is lost by that:
//
//   - A message that is never delivered stands for one that was lost, a process
//     that is never scheduled again for one that died, and a client that does
//     nothing more for one that died. So losses and deaths need no move of
//     their own, except where somebody notices them (a connection that breaks,
//     a client that gives up waiting). Every promise is checked in every world,
//     so also in those where it goes no further.
//   - A coordinator that was superseded goes on until the log tells it. A crash
//     is the case in which it does nothing more: what it had not appended it
//     could not have appended after the claim either.
//   - A request to the coordinator arrives when it is sent, because its client
//     does nothing else meanwhile: a slow request is a slow client. One that
//     arrives after its client has given up waiting is a move of its own. An
//     answer arrives when it is sent, for the same reason: a client that was
//     not to hear it has given up before.
//   - An append lands and is acknowledged in one move. What an owner does on
//     the acknowledgement can stay undone: its requests stay under way, and
//     clients have given up waiting before.
//   - Records of one transaction on different clusters are written in one move.
//     Everything that can happen to one cluster in between is possible before
//     or after, because clusters know nothing of each other.
//   - Clocks: a deadline comes when the search lets it come. Retries are due at
//     once, then the waiting clients' deadlines, then votes, then the session.
//     Only the order of what is armed at the same time is fixed by that.
//   - Markers are written at once. While they are not, the cluster answers
//     CONCURRENT_TRANSACTIONS to everything, which is "ask again later".
//
// Worlds are told apart by a 64-bit hash of their encoding. With n worlds two of
// them share one with probability n²/2⁶⁵: 3 in a million for ten million.
type Search struct {
	Name   string
	Config func() *world
	// Limit ends the search when so many worlds were seen, 0 is none.
	Limit int64
	// Shortest makes it go breadth first, so that the way to a violation is
	// one of the shortest. It takes one worker, and memory.
	Shortest bool
	// Workers defaults to the number of processors.
	Workers int
}

// Found is what a search came to.
type Found struct {
	Name      string
	Worlds    int64 // different ones
	Moves     int64
	Settled   int64 // worlds from which the end was played out
	Depth     int   // of the longest path walked
	Complete  bool
	Violation string
	Path      []string // to the violation
}

// node is a world to be expanded, with the way to it.
type node struct {
	world *world
	way   *way
}

type way struct {
	move   move
	before *way
	depth  int
}

type searcher struct {
	Search
	seen  *seenSet
	mu    sync.Mutex
	idle  *sync.Cond
	stack []node
	busy  int
	done  bool
	found Found
	bad   *way
}

// Run searches.
func (s Search) Run() Found {
	switch {
	case s.Shortest:
		s.Workers = 1
	case s.Workers == 0:
		s.Workers = runtime.GOMAXPROCS(0)
	}
	r := &searcher{Search: s, seen: newSeenSet(), found: Found{Name: s.Name}}
	r.idle = sync.NewCond(&r.mu)
	first := s.Config()
	r.seen.add(first.encode(nil))
	r.stack = []node{{world: first}}
	var wg sync.WaitGroup
	for range s.Workers {
		wg.Go(r.work)
	}
	wg.Wait()
	r.found.Worlds = r.seen.len()
	r.found.Complete = r.found.Violation == "" && !r.done
	if r.bad != nil {
		r.found.Path = s.replay(r.bad)
	}
	return r.found
}

// work expands worlds, its own first and depth first, and gives some away when
// others have none.
func (r *searcher) work() {
	var own []node
	local := Found{}
	var buf []byte
	var ms []move
	for was := false; ; was = true {
		if len(own) == 0 {
			if own = r.takeSome(was); own == nil {
				break
			}
		}
		var n node
		if r.Shortest {
			n, own = own[0], own[1:]
		} else {
			n, own = own[len(own)-1], own[:len(own)-1]
		}
		ms = n.world.faults(n.world.moves(ms[:0]))
		if quiet(ms) {
			local.Settled++
			end := n.world.clone()
			if end.settle(); end.bad != "" {
				r.violation(end.bad, n.way)
				break
			}
		}
		depth := 1
		if n.way != nil {
			depth = n.way.depth + 1
		}
		local.Depth = max(local.Depth, depth)
		for i, m := range ms {
			next := n.world
			if i < len(ms)-1 {
				next = n.world.clone()
			}
			next.do(m)
			local.Moves++
			w := &way{m, n.way, depth}
			if next.bad != "" {
				r.violation(next.bad, w)
				break
			}
			buf = next.encode(buf[:0])
			if r.seen.add(buf) {
				own = append(own, node{next, w})
			}
		}
		own = r.share(own)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found.Moves += local.Moves
	r.found.Settled += local.Settled
	r.found.Depth = max(r.found.Depth, local.Depth)
}

// quiet reports whether only clients, clocks, scans and faults could go on: from
// such a world the end is played out.
func quiet(ms []move) bool {
	return !slices.ContainsFunc(ms, func(m move) bool { return inProgress[m.kind] })
}

func (r *searcher) violation(what string, at *way) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.found.Violation == "" {
		r.found.Violation, r.bad = what, at
	}
	r.done = true
	r.idle.Broadcast()
}

// takeSome waits for work; nil says that there is no more.
func (r *searcher) takeSome(was bool) []node {
	r.mu.Lock()
	defer r.mu.Unlock()
	if was {
		r.busy--
	}
	for len(r.stack) == 0 && r.busy > 0 && !r.done {
		r.idle.Wait()
	}
	if len(r.stack) == 0 || r.done {
		r.idle.Broadcast()
		return nil
	}
	r.busy++
	some := r.stack
	r.stack = nil
	return some
}

// share gives half of what a worker has to do to others that wait, and ends the
// search at its limit.
func (r *searcher) share(own []node) []node {
	if len(own) < 2 {
		return own
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Limit > 0 && r.seen.len() > r.Limit {
		r.done = true
	}
	if r.done {
		r.idle.Broadcast()
		return nil
	}
	if r.busy == r.Workers || len(r.stack) > 0 {
		return own
	}
	half := len(own) / 2
	r.stack = append(r.stack, own[:half]...)
	r.idle.Broadcast()
	return append([]node(nil), own[half:]...)
}

// replay walks to the violation once more and tells what happens.
func (s Search) replay(to *way) []string {
	var moves []move
	for ; to != nil; to = to.before {
		moves = append(moves, to.move)
	}
	var lines []string
	w := s.Config()
	w.trace = func(line string) { lines = append(lines, line) }
	for i := len(moves) - 1; i >= 0; i-- {
		w.do(moves[i])
	}
	if w.bad == "" {
		w.settle()
	}
	return lines
}
