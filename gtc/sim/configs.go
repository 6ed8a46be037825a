package sim

import "github.com/kafka-gtc/kafka-gtc/gtc"

// both is the choice of a client that writes to two participants; single that of
// one that writes to the first alone, and commits in one phase.
var (
	both   = []set{{3, 3}}
	single = []set{{1, 1}}
)

// Searches are the configurations of the default run: two participants, two
// client instances with one transaction each, two coordinators and one takeover
// (by which the first is dead or a zombie). The first has the losses and
// repetitions of all messages that the protocol sends, the others add one kind
// of fault each to what stays small enough.
func Searches() []Search {
	s := func(name string, versions []int16, sets []set, b budget) Search {
		return Search{Name: name, Config: func() *world { return searched("", 2, versions, sets, b) }}
	}
	one := func(name string, versions []int16, sets []set, b budget) Search {
		return Search{Name: "one client: " + name, Config: func() *world { return searched("", 1, versions, sets, b) }}
	}
	// What EndTxn v4 ends is told from what it ended before only where there is one.
	thrice := func(name string, versions []int16, sets []set, b budget) Search {
		return Search{Name: "one client, three transactions: " + name, Config: func() *world {
			w := searched("", 1, versions, sets, b)
			w.clients[0].left = 3
			return w
		}}
	}
	// Deadlines are bounded: two who take a transaction from each other, as often as
	// they are let, come to a new epoch each time.
	kept := func(name string, versions []int16, sets []set, b budget) Search {
		return Search{Name: "prepared transactions are kept: " + name, Config: func() *world { return searched("", 2, versions, sets, b).keeping() }}
	}
	v5, v4 := []int16{bumps, bumps}, []int16{keeps, keeps}
	r5, r4 := v5[:1], v4[:1]
	return []Search{
		s("takeover, lost answers and repeated requests, broken connections and late copies", v5, both, budget{claims: 1, giveUps: 1, breaks: 1}),
		s("takeover, a request that arrives late", v5, both, budget{claims: 1, late: 1}),
		s("takeover, deadlines", v5, both, budget{claims: 1, ticks: -1}),
		s("scan and session timeout", v5, both, budget{scans: 1, ticks: -1}),
		one("an operator gives a cluster up, looks before and after", v5, both, budget{scans: 2, gaveUp: 1, breaks: 1, ticks: -1}),
		one("a cluster goes back in time", v5, both, budget{scans: 1, goBacks: 1, ticks: -1}),
		one("a deposed transaction coordinator answers from before", v5, both, budget{claims: 1, deposals: 1, ticks: -1}),
		one("one participant: a deposed transaction coordinator answers from before", r5, single, budget{claims: 1, giveUps: 1, deposals: 1, ticks: -1}),
		thrice("EndTxn v4: a deposed transaction coordinator, over an old connection", v4, both, budget{breaks: 1, deposals: 1, ticks: -1}),
		thrice("one participant, EndTxn v4: a deposed transaction coordinator, over an old connection", r4, single, budget{claims: 1, giveUps: 1, breaks: 1, deposals: 1, ticks: -1}),
		s("EndTxn v4: takeover", v4, both, budget{claims: 1}),
		s("EndTxn v4: broken connections and late copies, deadlines", v4, both, budget{breaks: 1, ticks: -1}),
		s("one participant: takeover, losses, deadlines", r5, single, budget{claims: 1, giveUps: 1, breaks: 1, ticks: -1}),
		s("one participant: takeover, scan and session timeout", r5, single, budget{claims: 1, scans: 1, ticks: -1}),
		s("one participant, EndTxn v4: takeover, losses", r4, single, budget{claims: 1, giveUps: 1, breaks: 1}),
		s("one participant, EndTxn v4: takeover, scan and session timeout", r4, single, budget{claims: 1, scans: 1, ticks: -1}),
		s("one participant, EndTxn v4: takeover, scan, and clients that write on", r4, single, budget{claims: 1, scans: 1, ticks: -1, more: 1}),
		kept("takeover, broken connections and late copies", v5, both, budget{claims: 1, breaks: 1}),
		kept("one participant: takeover, losses", r5, single, budget{claims: 1, giveUps: 1, breaks: 1, ticks: 1}),
		kept("one participant: scan and session timeout", r5, single, budget{scans: 1, ticks: 4}),
	}
}

// Deep is one configuration with all kinds of loss and repetition at once. It
// takes hours.
func Deep() Search {
	b := budget{claims: 1, breaks: 1, giveUps: 1, late: 1, scans: 1, ticks: -1}
	return Search{Name: "everything at once", Config: func() *world {
		return searched("", 2, []int16{bumps, bumps}, both, b)
	}}
}

// Smallest is complete in seconds: one client, one takeover.
func Smallest() Search {
	return Search{Name: "one client, takeover", Config: func() *world {
		return searched("", 1, []int16{bumps, bumps}, both, budget{claims: 1, breaks: 1, giveUps: 1, ticks: -1})
	}}
}

// RuleSearches look for what happens when a rule is left out, or one of those that
// keeping prepared transactions rests on. Each must find a
// broken promise, on a shortest way. The promise that rules are about is the
// outcome: that an EndTxn is in the log before it leaves, which R1 says itself,
// is not checked in them.
func RuleSearches() []Search {
	v5, v4 := []int16{bumps, bumps}, []int16{keeps}
	table := []struct {
		rule     Mutant
		versions []int16
		sets     []set
		clients  int
		txns     int8
		patience int32
		b        budget
	}{
		{withoutR1, v5, both, 1, 1, never, budget{claims: 1, giveUps: 1, ticks: -1}},
		{withoutR2, v5, both, 2, 1, never, budget{ticks: -1, breaks: 1}},
		{withoutR3, v5, both, 2, 1, never, budget{}},
		// The second transaction is hit by what was meant for the first.
		{withoutR3Ended, v4, single, 1, 2, never, budget{scans: 1, ticks: -1}},
		{withoutR4, v5, both, 1, 1, never, budget{giveUps: 1}},
		// Without patience, so that the coordinator tells what it knows.
		{withoutR5, v5[:1], single, 1, 1, 0, budget{claims: 1, giveUps: 1, scans: 1, ticks: -1}},
		{withoutR5Record, v5[:1], single, 1, 1, never, budget{claims: 1, giveUps: 1}},
		{readOnlyVote, v5, both, 1, 1, never, budget{deposals: 1}},
		{oldConnection, v4, single, 1, 2, never, budget{giveUps: 1, deposals: 1, ticks: -1}},
		{anyBroker, []int16{keeps, keeps}, both, 1, 3, never, budget{deposals: 1}},
		{unfencedOnePhase, v4, single, 1, 1, never, budget{claims: 1, scans: 1, ticks: -1, more: 1}},
		{sameSession, v5, both, 1, 1, never, budget{claims: 1, late: 1}},
		{initWithoutKeep, v5, both, 2, 1, never, budget{}},
		{abortsAnyKept, v5, both, 2, 1, never, budget{}},
		{endsAnyKept, v5[:1], single, 2, 1, never, budget{scans: 1, ticks: -1}},
	}
	var out []Search
	for _, r := range table {
		out = append(out, Search{Name: string(r.rule), Shortest: true, Config: func() *world {
			w := searched(r.rule, r.clients, r.versions, r.sets, r.b)
			if r.rule == initWithoutKeep || r.rule == abortsAnyKept || r.rule == endsAnyKept {
				w.keeping()
			}
			w.outcomesOnly, w.patience, w.clients[0].left = true, r.patience, r.txns
			return w
		}})
	}
	return out
}

// never is a deadline that does not come in a search.
const never = 10 * sweepIsFar

// searched makes a world for the search: two hosts, of which the first owns the
// partition, and one or two clients with one instance each.
func searched(mutant Mutant, clients int, versions []int16, sets []set, b budget) *world {
	w := &world{settings: settings{
		n: len(versions), mutant: mutant, deepCheck: true,
		machine: gtc.Config{
			MaxTimeoutMillis: 1000, VoteTimeoutMillis: 0, ExpirationMillis: 1 << 40,
			MaxParticipants: maxClusters, MaxWaiters: 8,
		},
		sessionTimeout: 1, patience: never, shape: shape{txns: 1, sets: sets, outsiders: 2},
	}}
	for h := range w.hosts {
		w.hosts[h].clock = gtc.Time{Mono: 1000, Wall: 1000}
	}
	for k, v := range versions {
		w.clusters[k] = cluster{version: v}
	}
	for i := range w.clients {
		w.clients[i].txn = -1
	}
	w.budget = b
	w.claim(0)
	for i := range int8(clients) {
		w.clients[i].lives = 1
		w.start(i, 0)
	}
	return w
}

// keeping gives all clusters KeepPreparedTxn.
func (w *world) keeping() *world {
	for k := range w.n {
		w.clusters[k].keepsPrepared = true
	}
	return w
}
