package gtc

import (
	"maps"
	"slices"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// StateName is the state as DescribeGlobalTransactions shows it: the durable
// one, or Ongoing.
type StateName string

// The state names of KIP.md.
const (
	NameEmpty          StateName = "Empty"
	NameOngoing        StateName = "Ongoing"
	NamePrepareCommit  StateName = "PrepareCommit"
	NamePrepareAbort   StateName = "PrepareAbort"
	NameCompleteCommit StateName = "CompleteCommit"
	NameCompleteAbort  StateName = "CompleteAbort"
	NameDead           StateName = "Dead"
)

// StateNames lists them all, for filters and for the KIP's table.
func StateNames() []StateName {
	return []StateName{NameEmpty, NameOngoing, NamePrepareCommit, NamePrepareAbort, NameCompleteCommit, NameCompleteAbort, NameDead}
}

// NameOf is the name of a durable state.
func NameOf(s txnlog.State) StateName {
	switch s {
	case txnlog.StateEmpty:
		return NameEmpty
	case txnlog.StatePrepareCommit:
		return NamePrepareCommit
	case txnlog.StatePrepareAbort:
		return NamePrepareAbort
	case txnlog.StateCompleteCommit:
		return NameCompleteCommit
	case txnlog.StateCompleteAbort:
		return NameCompleteAbort
	case txnlog.StateDead:
		return NameDead
	}
	return StateName("Unknown")
}

// Description is all that the coordinator knows of an id.
type Description struct {
	ID    string
	State StateName
	Value *txnlog.GlobalTransaction // not to be changed
	// Participants are those of the transaction in State: the decided ones,
	// or while Ongoing those that are being asked or were seen open.
	Participants []ParticipantDescription
	Heuristic    bool
	// AgeMillis is how long an undecided transaction has been known open or
	// a decided one has been pending; -1 when neither is the case.
	AgeMillis int64
}

// ParticipantDescription is one participant of a Description.
type ParticipantDescription struct {
	txnlog.Participant
	AgeMillis int64 // as in Description
	Leftover  bool
}

// Describe tells what is known of an id.
func (m *Machine) Describe(now Time, id string) (Description, bool) {
	e := m.entries[id]
	if e == nil || e.value == nil {
		return Description{}, false
	}
	return describe(now, e), true
}

// Value is what the log says of an id, nil when nothing. It is not to be
// changed.
func (m *Machine) Value(id string) *txnlog.GlobalTransaction {
	if e := m.entries[id]; e != nil {
		return e.value
	}
	return nil
}

// List describes every id, sorted.
func (m *Machine) List(now Time) []Description {
	ds := make([]Description, 0, len(m.entries))
	for _, id := range slices.Sorted(maps.Keys(m.entries)) {
		if d, ok := m.Describe(now, id); ok {
			ds = append(ds, d)
		}
	}
	return ds
}

func describe(now Time, e *entry) Description {
	v := e.value
	d := Description{ID: e.id, Value: v, State: NameOf(v.State), Heuristic: heuristic(v), AgeMillis: -1}
	vol := e.volatile.clone()
	add := func(p txnlog.Participant, age int64, leftover bool) {
		d.Participants = append(d.Participants, ParticipantDescription{Participant: p, AgeMillis: age, Leftover: leftover})
		d.AgeMillis = max(d.AgeMillis, age)
	}
	age := func(ref ParticipantRef, leftover bool) (int64, string) {
		for _, x := range vol.drives {
			if x.ref == ref && x.leftover == leftover {
				return now.Mono - x.since, x.detail
			}
		}
		return -1, ""
	}
	undecided := vol.ending != nil || !busy(v) && len(vol.open) > 0
	// Torn ones are always shown: what goes on beside them must not hide from
	// an operator why the id stands still.
	for _, p := range v.Participants {
		if undecided && !p.State.Heuristic() {
			continue
		}
		since, detail := age(refOf(p), false)
		if p.Detail == "" {
			p.Detail = detail
		}
		add(p, since, false)
	}
	if vol.ending != nil {
		d.State = NameOngoing
		for _, p := range participantsOf(vol.ending.refs) {
			since, detail := age(refOf(p), false)
			p.Detail = detail
			add(p, max(since, 0), false)
		}
	}
	if undecided {
		for _, o := range vol.open {
			known := func(p ParticipantDescription) bool { return refOf(p.Participant) == o.ref() }
			if !slices.ContainsFunc(d.Participants, known) && !vol.driving(o.ref(), true) {
				d.State = NameOngoing
				add(o.participant(), now.Mono-o.firstSeen, false)
			}
		}
	}
	for _, p := range v.Leftovers {
		since, detail := age(refOf(p), true)
		p.Detail = detail
		add(p, since, true)
	}
	return d
}
