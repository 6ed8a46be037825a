package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Anomaly is something that must not happen.
type Anomaly struct {
	Kind AnomalyKind
	// Txn is the transaction concerned, or empty.
	Txn    string
	Detail string
}

func (a Anomaly) String() string {
	if a.Txn == "" {
		return fmt.Sprintf("%s: %s", a.Kind, a.Detail)
	}
	return fmt.Sprintf("%s: transaction %s: %s", a.Kind, a.Txn, a.Detail)
}

// AnomalyKind names an anomaly.
type AnomalyKind string

// The anomalies.
const (
	// AbortedRead: a value is or was visible whose transaction was aborted,
	// or which nobody ever asked to commit.
	AbortedRead AnomalyKind = "aborted read"
	// LostWrite: the client was told "committed", and a value is not visible.
	LostWrite AnomalyKind = "lost write"
	// Duplicate: one value is visible at two places.
	Duplicate AnomalyKind = "duplicate"
	// PreCommittedRead: a value was visible before its commit was asked for.
	PreCommittedRead AnomalyKind = "pre-committed read"
	// InconsistentOffsets: two values at one offset, a value at another
	// offset than the one acknowledged, or in another partition than written.
	InconsistentOffsets AnomalyKind = "inconsistent offsets"
	// OutOfOrder: the values of one transaction are not in the order in which
	// they were written to the partition.
	OutOfOrder AnomalyKind = "out of order"
	// Vanished: a value was visible and is so no more.
	Vanished AnomalyKind = "vanished"
	// Stray: a value is visible that nobody wrote.
	Stray AnomalyKind = "stray value"
	// Torn: a part of a global transaction is visible and another is not.
	Torn AnomalyKind = "torn global transaction"
	// ChangedOutcome: the client was told "committed" and "aborted" of one
	// transaction.
	ChangedOutcome AnomalyKind = "changed outcome"
	// HeuristicOutcome: the client was told, or the coordinator reported, that
	// the clusters differ or that one forgot, and no act explains it; or it is
	// untrue.
	HeuristicOutcome AnomalyKind = "heuristic outcome"
	// Unreported: the clusters differ, an act explains it, and the coordinator,
	// which must have known, has not said so.
	Unreported AnomalyKind = "unreported contradiction"
)

// Verdict is what Check finds.
type Verdict struct {
	Anomalies []Anomaly // in an order of its own that is the same each time
	// Reported counts the transactions that are not whole, as an act explains and
	// the coordinator has reported.
	Reported int
	// Lost counts those that a restored cluster has forgotten and nobody could
	// know of.
	Lost int
}

// Outcomes counts transactions by what their clients were told last; one that
// never got an answer is Unknown.
type Outcomes struct{ Committed, Aborted, Unknown int }

// Total is the number of transactions.
func (o Outcomes) Total() int { return o.Committed + o.Aborted + o.Unknown }

// Count counts the transactions of a history.
func Count(h History) Outcomes {
	var o Outcomes
	for _, t := range transactions(h.Events) {
		switch {
		case t.told[Committed]:
			o.Committed++
		case t.told[Aborted]:
			o.Aborted++
		default:
			o.Unknown++
		}
	}
	return o
}

// Check judges a history. Every transaction must be over: what is open is not
// visible, and Check would take it for aborted.
func Check(h History) Verdict {
	c := checker{
		acts: acts(h.Events), txns: transactions(h.Events), writes: map[string]*write{},
		seen: map[string][]Read{}, at: map[spot]string{}, final: map[string]bool{},
	}
	for _, e := range h.Events {
		switch e.Kind {
		case Contradicted, Reopened:
			c.reports = append(c.reports, e)
		case Pending:
			c.pending = append(c.pending, e)
		case Open, Begin, Write, Wrote, Ask, Answer, Rest, Note, GaveUp, Forgot, Copied, Restored:
		}
	}
	c.ids = slices.Sorted(maps.Keys(c.txns))
	for _, t := range c.txns {
		for _, w := range t.writes {
			c.writes[w.value] = w
		}
	}
	for _, r := range h.Final {
		c.final[r.Value] = true
		c.read(r)
	}
	for _, r := range h.Polled {
		c.read(r)
		if w := c.writes[r.Value]; w != nil {
			first(w.txn.ended, r.Place.Cluster, r.At)
		}
	}
	for _, r := range h.Polled { // when it is known where and how long each was seen
		c.polled(r)
	}
	c.duplicates()
	for _, id := range c.ids {
		c.outcome(c.txns[id])
		c.order(c.txns[id])
	}
	c.reported()
	slices.SortStableFunc(c.verdict.Anomalies, func(a, b Anomaly) int {
		return cmp.Or(strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.Txn, b.Txn), strings.Compare(a.Detail, b.Detail))
	})
	c.verdict.Anomalies = slices.Compact(c.verdict.Anomalies)
	return c.verdict
}

type write struct {
	txn     *txn
	value   string
	place   Place
	at      int64 // it began
	offset  int64 // acknowledged, -1 when it was not
	ackedAt int64
}

func (w *write) acked() bool { return w.offset >= 0 }

type txn struct {
	name    string              // unique in the history
	id      string              // the global transactional id
	writes  []*write            // in their order
	on      map[string][]*write // the same by cluster
	askedAt int64               // when commit was first asked for, 0 when never
	told    map[Outcome]bool
	// By cluster: its name there, as far as a write was acknowledged; when the
	// coordinator was first known to know that it has ended there; and the first
	// sign of any kind that it has.
	producers       map[string]Producer
	complete, ended map[string]int64
}

// is reports that what the coordinator says of a participant can be about the
// transaction: it has that name there, or its name was never learned.
func (t *txn) is(e Event) bool {
	if t.id != e.ID {
		return false
	}
	p, known := t.producers[e.Place.Cluster]
	return p == e.Producer || !known && len(t.on[e.Place.Cluster]) > 0
}

// first keeps the earliest time of a cluster.
func first(times map[string]int64, cluster string, at int64) {
	if before, known := times[cluster]; !known || at < before {
		times[cluster] = at
	}
}

func transactions(events []Event) map[string]*txn {
	txns := map[string]*txn{}
	values := map[string]*write{}
	for _, e := range events {
		if e.Txn == "" {
			continue
		}
		t := txns[e.Txn]
		if t == nil {
			t = &txn{name: e.Txn, told: map[Outcome]bool{}, on: map[string][]*write{}, producers: map[string]Producer{}, complete: map[string]int64{}, ended: map[string]int64{}}
			txns[e.Txn] = t
		}
		switch e.Kind {
		case Begin:
			t.id = e.ID
		case Write:
			w := &write{txn: t, value: e.Value, place: e.Place, at: e.At, offset: -1}
			values[e.Value] = w
			t.writes = append(t.writes, w)
			t.on[e.Place.Cluster] = append(t.on[e.Place.Cluster], w)
		case Wrote:
			if w := values[e.Value]; w != nil {
				w.offset, w.ackedAt = e.Offset, e.At
			}
			t.producers[e.Place.Cluster] = e.Producer
		case Ask:
			if e.Op == OpCommit && t.askedAt == 0 {
				t.askedAt = e.At
			}
		case Answer:
			t.told[e.Result] = true
			for _, cluster := range e.Ended {
				first(t.complete, cluster, e.At)
				first(t.ended, cluster, e.At)
			}
		case Open, Rest, Note, GaveUp, Forgot, Copied, Restored, Pending, Contradicted, Reopened:
		}
	}
	return txns
}

// spot is where one record can be.
type spot struct {
	place  Place
	life   int
	offset int64
}

type checker struct {
	acts    []act
	reports []Event // of the coordinator
	pending []Event
	txns    map[string]*txn
	ids     []string          // of txns, in order
	writes  map[string]*write // by value
	seen    map[string][]Read // by value, each spot once
	at      map[spot]string
	final   map[string]bool // values
	verdict Verdict
}

func (c *checker) add(kind AnomalyKind, t *txn, format string, args ...any) {
	a := Anomaly{Kind: kind, Detail: fmt.Sprintf(format, args...)}
	if t != nil {
		a.Txn = t.name
	}
	c.verdict.Anomalies = append(c.verdict.Anomalies, a)
}

// read judges one record by itself.
func (c *checker) read(r Read) {
	here := spot{r.Place, r.Life, r.Offset}
	other, known := c.at[here]
	c.at[here] = r.Value
	if known && other != r.Value {
		c.add(InconsistentOffsets, nil, "%v at %d was %q and is %q", r.Place, r.Offset, other, r.Value)
	}
	if known && other == r.Value {
		return // Polled and Final show the same
	}
	c.seen[r.Value] = append(c.seen[r.Value], r)
	w := c.writes[r.Value]
	switch {
	case w == nil:
		c.add(Stray, nil, "%q at %v offset %d", r.Value, r.Place, r.Offset)
	case w.place != r.Place:
		c.add(InconsistentOffsets, w.txn, "%q was written to %v and is visible in %v", r.Value, w.place, r.Place)
	case w.offset >= 0 && w.offset != r.Offset:
		c.add(InconsistentOffsets, w.txn, "%q was acknowledged at %v offset %d and is visible at %d", r.Value, r.Place, w.offset, r.Offset)
	}
}

// polled judges when a record was seen.
func (c *checker) polled(r Read) {
	w := c.writes[r.Value]
	if w == nil {
		return
	}
	if !c.final[r.Value] && c.loss(w) == unexcused {
		c.add(Vanished, w.txn, "%q was visible at %v offset %d", r.Value, r.Place, r.Offset)
	}
	if w.txn.askedAt > r.At {
		c.add(PreCommittedRead, w.txn, "%q was visible %d µs before commit was asked for", r.Value, (w.txn.askedAt-r.At)/1000)
	}
}

func (c *checker) duplicates() {
	for value, reads := range c.seen {
		one := reads[0]
		// What outlives a restore stays where it was.
		i := slices.IndexFunc(reads, func(r Read) bool { return r.Place != one.Place || r.Offset != one.Offset })
		if i < 0 {
			continue
		}
		var t *txn
		if w := c.writes[value]; w != nil {
			t = w.txn
		}
		c.add(Duplicate, t, "%q at %v offset %d and at %v offset %d", value, one.Place, one.Offset, reads[i].Place, reads[i].Offset)
	}
}

// outcome compares what is visible of a transaction with what was said of it.
func (c *checker) outcome(t *txn) {
	var missing, visible []*write
	lost := map[string]loss{} // by cluster
	ever := 0                 // visible now or before
	for _, w := range t.writes {
		if len(c.seen[w.value]) > 0 {
			ever++
		}
		if c.final[w.value] {
			visible = append(visible, w)
		}
	}
	for _, w := range t.writes {
		if c.final[w.value] || !t.told[Committed] && ever == 0 {
			continue // nothing of what was never committed is missed
		}
		if l := c.loss(w); l == unexcused {
			missing = append(missing, w)
		} else if before, is := lost[w.place.Cluster]; !is || l < before {
			lost[w.place.Cluster] = l
		}
	}
	if t.told[Committed] && t.told[Aborted] {
		c.add(ChangedOutcome, t, "the client was told committed and aborted")
	}
	if t.told[Heuristic] && !slices.ContainsFunc(c.acts, func(a act) bool { return a.concerns(t) }) {
		c.add(HeuristicOutcome, t, "%d of %d values are visible", len(visible), len(t.writes))
	}
	if t.told[Committed] && len(missing) > 0 {
		c.add(LostWrite, t, "committed, and %s not visible", list(missing))
	}
	if t.told[Aborted] && ever > 0 {
		c.add(AbortedRead, t, "aborted, and %d of %d values are or were visible", ever, len(t.writes))
	}
	if t.askedAt == 0 && ever > 0 {
		c.add(AbortedRead, t, "nobody asked for commit, and %d of %d values are or were visible", ever, len(t.writes))
	}
	if len(visible) > 0 && len(missing) > 0 {
		c.add(Torn, t, "%s visible, %s not", list(visible), list(missing))
	}
	c.excused(t, lost)
}

// excused counts a committed transaction of which clusters have lost something, as
// acts explain, and finds what should have been reported.
func (c *checker) excused(t *txn, lost map[string]loss) {
	told, unknown := false, false
	for _, cluster := range slices.Sorted(maps.Keys(lost)) {
		switch {
		case c.told(t, cluster):
			told = true
		case lost[cluster] == reportable:
			c.add(Unreported, t, "committed, and not whole on %s", cluster)
		default:
			unknown = true
		}
	}
	switch {
	case told:
		c.verdict.Reported++
	case unknown:
		c.verdict.Lost++
	}
}

// order compares the order of a transaction's values in each partition with the
// order of writing.
func (c *checker) order(t *txn) {
	last := map[Place]Read{}
	for _, w := range t.writes {
		reads := c.seen[w.value]
		if len(reads) == 0 {
			continue
		}
		r := reads[0]
		if before, ok := last[r.Place]; ok && before.Offset > r.Offset {
			c.add(OutOfOrder, t, "%v: %q at %d was written before %q at %d", r.Place, before.Value, before.Offset, r.Value, r.Offset)
		}
		last[r.Place] = r
	}
}

// list names up to three writes with their places.
func list(ws []*write) string {
	var b strings.Builder
	for i, w := range ws {
		if i == 3 {
			fmt.Fprintf(&b, " and %d more", len(ws)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q (%v)", w.value, w.place)
	}
	return b.String()
}
