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
	// HeuristicOutcome: the client was told that the clusters differ, and
	// there was no outsider who could have done that.
	HeuristicOutcome AnomalyKind = "heuristic outcome"
)

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

// Check returns the anomalies of a history, in an order of its own that is the
// same each time. Every transaction must be over: what is open is not visible,
// and Check would take it for aborted.
func Check(h History) []Anomaly {
	c := checker{txns: transactions(h.Events), writes: map[string]*write{}, seen: map[string][]Read{}, at: map[spot]string{}}
	for _, t := range c.txns {
		for _, w := range t.writes {
			c.writes[w.value] = w
		}
	}
	final := map[string]bool{}
	for _, r := range h.Final {
		final[r.Value] = true
		c.read(r)
	}
	for _, r := range h.Polled {
		c.polled(r, final)
	}
	c.duplicates()
	for _, id := range slices.Sorted(maps.Keys(c.txns)) {
		c.outcome(c.txns[id], final)
		c.order(c.txns[id])
	}
	slices.SortStableFunc(c.found, func(a, b Anomaly) int {
		return cmp.Or(strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.Txn, b.Txn), strings.Compare(a.Detail, b.Detail))
	})
	return slices.Compact(c.found)
}

type write struct {
	txn    *txn
	value  string
	place  Place
	offset int64 // acknowledged, -1 when it was not
}

type txn struct {
	id      string
	writes  []*write // in their order
	askedAt int64    // when commit was first asked for, 0 when never
	told    map[Outcome]bool
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
			t = &txn{id: e.Txn, told: map[Outcome]bool{}}
			txns[e.Txn] = t
		}
		switch e.Kind {
		case Write:
			w := &write{txn: t, value: e.Value, place: e.Place, offset: -1}
			values[e.Value] = w
			t.writes = append(t.writes, w)
		case Wrote:
			if w := values[e.Value]; w != nil {
				w.offset = e.Offset
			}
		case Ask:
			if e.Op == OpCommit && t.askedAt == 0 {
				t.askedAt = e.At
			}
		case Answer:
			t.told[e.Result] = true
		case Open, Begin, Rest, Note:
		}
	}
	return txns
}

// spot is where one record can be.
type spot struct {
	place  Place
	offset int64
}

type checker struct {
	txns   map[string]*txn
	writes map[string]*write // by value
	seen   map[string][]Read // by value, each spot once
	at     map[spot]string
	found  []Anomaly
}

func (c *checker) add(kind AnomalyKind, t *txn, format string, args ...any) {
	a := Anomaly{Kind: kind, Detail: fmt.Sprintf(format, args...)}
	if t != nil {
		a.Txn = t.id
	}
	c.found = append(c.found, a)
}

// read judges one record by itself.
func (c *checker) read(r Read) {
	here := spot{r.Place, r.Offset}
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

func (c *checker) polled(r Read, final map[string]bool) {
	c.read(r)
	w := c.writes[r.Value]
	if w == nil {
		return
	}
	if !final[r.Value] {
		c.add(Vanished, w.txn, "%q was visible at %v offset %d", r.Value, r.Place, r.Offset)
	}
	if w.txn.askedAt > r.At {
		c.add(PreCommittedRead, w.txn, "%q was visible %d µs before commit was asked for", r.Value, (w.txn.askedAt-r.At)/1000)
	}
}

func (c *checker) duplicates() {
	for value, reads := range c.seen {
		if len(reads) < 2 {
			continue
		}
		var t *txn
		if w := c.writes[value]; w != nil {
			t = w.txn
		}
		c.add(Duplicate, t, "%q at %v offset %d and at %v offset %d", value, reads[0].Place, reads[0].Offset, reads[1].Place, reads[1].Offset)
	}
}

// outcome compares what is visible of a transaction with what was said of it.
func (c *checker) outcome(t *txn, final map[string]bool) {
	var missing, visible []*write
	ever := 0 // visible now or before
	for _, w := range t.writes {
		if len(c.seen[w.value]) > 0 {
			ever++
		}
		if final[w.value] {
			visible = append(visible, w)
		} else {
			missing = append(missing, w)
		}
	}
	if t.told[Committed] && t.told[Aborted] {
		c.add(ChangedOutcome, t, "the client was told committed and aborted")
	}
	if t.told[Heuristic] {
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
