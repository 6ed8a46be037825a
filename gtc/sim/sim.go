package sim

import (
	"fmt"
	"math/rand/v2"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/gtc/verdict"
)

// Result is what one run came to.
type Result struct {
	Seed      uint64
	Mutant    Mutant
	Moves     int
	Violation string // empty when every promise was kept
	// What happened in it, to see that runs are worth their time.
	Committed, Aborted, Torn int
	GivenUp                  int // participants, by an operator
	Expired                  int // lives of the id
}

// add counts what happened in another run.
func (r *Result) add(o Result) {
	r.Moves += o.Moves
	r.Committed += o.Committed
	r.Aborted += o.Aborted
	r.Torn += o.Torn
	r.GivenUp += o.GivenUp
	r.Expired += o.Expired
}

// Simulate runs the world that the seed stands for. Trace, if not nil, hears
// every move.
func Simulate(seed uint64, mutant Mutant, trace func(string)) Result {
	r := &runner{rng: rand.New(rand.NewPCG(seed, 0)), weights: &weights{}, most: mostMoves}
	r.world = newSimulated(r.rng, r.weights)
	r.world.lately(rand.New(rand.NewPCG(seed, 1)), r.weights)
	r.world.mutant, r.world.trace = mutant, trace
	r.world.tracef("seed %d: %s", seed, r.world.text())
	for r.moves < r.most && r.world.bad == "" && r.step() {
	}
	if r.world.bad == "" {
		r.world.settle()
	}
	return r.result(seed)
}

// mostMoves bounds a run; the rest of its life is the healing.
const mostMoves = 300

type runner struct {
	world   world
	rng     *rand.Rand
	weights *weights
	buf     []move
	moves   int
	most    int
}

// weights are how likely each kind of move is, against the others that can
// happen at the time. They differ from seed to seed, so that some worlds are
// calm and some fall apart.
type weights [len(moveNames)]int

// step draws one move and makes it happen.
func (r *runner) step() bool {
	w := &r.world
	r.buf = w.faults(w.moves(r.buf[:0]))
	total := 0
	for _, m := range r.buf {
		total += r.weights[m.kind]
	}
	if total == 0 {
		return false
	}
	at := r.rng.IntN(total)
	for _, m := range r.buf {
		if at -= r.weights[m.kind]; at < 0 {
			w.do(m)
			break
		}
	}
	r.moves++
	return w.busyWorld()
}

// busyWorld: something may still happen that a client has to do with.
func (w *world) busyWorld() bool {
	for i := range w.clients {
		if c := &w.clients[i]; c.alive() || c.lives > 0 {
			return true
		}
	}
	return len(w.bag) > 0
}

func (r *runner) result(seed uint64) Result {
	w := &r.world
	res := Result{Seed: seed, Mutant: w.mutant, Moves: r.moves, Violation: w.bad, GivenUp: w.ledger.givenUp, Expired: int(w.ledger.life)}
	for i := range w.txns {
		x := &w.txns[i]
		switch {
		case x.heuristic != 0:
			res.Torn++
		case x.committed != 0:
			res.Committed++
		case x.aborted != 0:
			res.Aborted++
		}
	}
	return res
}

// newSimulated draws a world.
func newSimulated(rng *rand.Rand, ws *weights) world {
	pick := func(choices ...int) int { return choices[rng.IntN(len(choices))] }
	w := world{settings: settings{
		n: pick(1, 2, 2, 2, 3), fine: true, deepCheck: true,
		machine: gtc.Config{
			MaxTimeoutMillis: 1000, VoteTimeoutMillis: int64(pick(5, 20)),
			RetryBackoffMillis: 1, RetryBackoffMaxMillis: 8,
			ExpirationMillis: 1 << 40, ScanIntervalMillis: 1_000_000, // longer than everything else together, see age
			MaxParticipants: maxClusters, MaxWaiters: pick(2, 16),
		},
		sessionTimeout: int32(pick(10, 30)), patience: int32(pick(0, 4, 40)),
	}}
	versions := [][]int{{5, 5, 5}, {5, 5, 5}, {4, 4, 4}, {5, 4, 5}, {4, 5, 4}}[rng.IntN(5)]
	slow, first := rng.IntN(2) == 0, int16(pick(0, 0, verdict.LastEpoch-3))
	for k := range w.n {
		w.clusters[k] = cluster{version: int16(versions[k]), first: first, slow: slow, nextID: int16(10 * k)}
	}
	w.shape = shape{txns: int8(pick(1, 2, 3)), outsiders: 4}
	for s := uint8(1); s <= w.all(); s++ {
		w.shape.sets = append(w.shape.sets, set{s, s})
	}
	w.shape.sets = append(w.shape.sets, set{w.all(), w.all()}, set{w.all(), w.all()}, set{1, 3})
	outsiders, retention := 0, false
	if rng.IntN(5) == 0 {
		outsiders, retention = pick(1, 2), rng.IntN(4) == 0
	}
	w.retention = retention
	w.budget = budget{
		claims: 5, crashes: int8(pick(0, 1, 3)), breaks: int8(pick(0, 3, 9)), giveUps: 40, late: int8(pick(0, 6)), scans: 20, ticks: -1,
		outsiders: int8(outsiders), failures: int8(pick(0, 1, 2)), deaths: int8(pick(0, 1, 2)), resolves: int8(pick(0, 0, 2)),
	}
	for h := range w.hosts {
		w.hosts[h].clock = gtc.Time{Mono: 1000, Wall: 1_000_000_000}
	}
	for i := range w.clients {
		w.clients[i] = client{lives: int8(pick(1, 2, 3)), txn: -1}
	}
	w.machine.Clusters = w.n
	w.claim(0)
	ws.draw(rng)
	return w
}

// lately adds what came late. It is drawn from numbers of its own, so that the
// seeds that were kept before mean the same worlds.
func (w *world) lately(rng *rand.Rand, ws *weights) {
	pick := func(choices ...int) int { return choices[rng.IntN(len(choices))] }
	w.waitsForAborts = rng.IntN(4) == 0
	if rng.IntN(8) == 0 {
		w.budget.gaveUp, w.budget.resolves = 2, max(w.budget.resolves, 2)
		ws[mvGoneForGood], ws[mvDown], ws[mvUp] = pick(5, 20), max(ws[mvDown], 1), pick(5, 10)
	}
	if rng.IntN(8) == 0 {
		w.budget.ages, ws[mvAge] = int8(pick(1, 2)), pick(5, 20)
		ws[mvClock], ws[mvScan], w.budget.scans = 3, 5, 40
	}
	if rng.IntN(8) == 0 {
		w.budget.goBacks, ws[mvKeepCopy], ws[mvGoBack] = int8(pick(1, 2)), pick(1, 5, 20), pick(2, 10)
		ws[mvScan], w.budget.scans = 10, 40
	}
	w.varied = rng.IntN(4) == 0
	if rng.IntN(4) == 0 {
		w.budget.deposals, ws[mvDepose], ws[mvLearn] = 20, pick(5, 20), pick(1, 5, 20)
	}
	if rng.IntN(8) == 0 {
		w.budget.strangers, ws[mvStranger] = 20, 5
	}
	if rng.IntN(8) == 0 {
		// An application in a crash loop, under the eyes of one coordinator.
		ws[mvStart], ws[mvDie], ws[mvScan], w.budget.scans = 80, 20, 40, 60
		for i := range w.clients {
			w.clients[i].lives = 8
		}
		w.budget.deaths = 12
	}
	if rng.IntN(3) == 0 {
		// Clients that sleep in the middle of a transaction, and owners that
		// are superseded meanwhile.
		ws[mvWriteMore], ws[mvEnd], ws[mvScan], ws[mvTick], ws[mvClaim] = 40, 4, 10, 30, 4
	}
	if rng.IntN(4) == 0 {
		mixed := rng.IntN(3) == 0
		for k := range w.n {
			w.clusters[k].keepsPrepared = w.clusters[k].version >= bumps && (!mixed || rng.IntN(2) != 0)
		}
		if rng.IntN(2) == 0 {
			// Producers are initialised while what was left over is being ended.
			ws[mvScan], ws[mvTick], ws[mvDeliver], w.budget.scans = 20, 40, 10, 60
			ws[mvStart], ws[mvDie], w.budget.deaths = 80, 20, 12
			for i := range w.clients {
				w.clients[i].lives = 8
			}
		}
	}
}

// draw makes a mood: how likely each kind of move is.
func (ws *weights) draw(rng *rand.Rand) {
	pick := func(choices ...int) int { return choices[rng.IntN(len(choices))] }
	for k := range ws[:mvGoneForGood] {
		ws[k] = 20 * pick(1, 4, 4, 8)
	}
	ws[mvStart] = pick(2, 10, 40)
	ws[mvAbort] = pick(2, 20)
	ws[mvAbortAsked], ws[mvGiveUp], ws[mvGiveUpCluster] = pick(1, 10), pick(1, 5, 30), pick(0, 1, 5)
	ws[mvWriteMore] = pick(0, 1, 5)
	ws[mvTick], ws[mvScan] = pick(2, 10, 30), pick(1, 5)
	ws[mvDie] = pick(1, 4)
	ws[mvBreak], ws[mvDrop], ws[mvCopy] = pick(1, 5, 20), pick(1, 5), pick(0, 1, 5)
	ws[mvFail], ws[mvCrash], ws[mvClaim] = pick(1, 5), pick(1, 4), pick(1, 4)
	ws[mvPause], ws[mvWake] = pick(0, 2), pick(1, 10, 60)
	ws[mvOutsider] = 3
	ws[mvDown], ws[mvUp] = pick(0, 0, 2), pick(10, 60)
	ws[mvResolve], ws[mvClock] = 1, pick(0, 1)
}

func (w *world) text() string {
	t := fmt.Sprintf("%d clusters", w.n)
	for k := range w.n {
		t += fmt.Sprintf(", %s v%d from epoch %d", clusterIDs[k], w.clusters[k].version, w.clusters[k].first)
		if w.clusters[k].keepsPrepared {
			t += " keeps"
		}
	}
	return t
}
