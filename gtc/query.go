package gtc

import (
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

// IDs are those that Describe knows, in no order.
func (m *Machine) IDs() []string {
	ids := make([]string, 0, len(m.entries))
	for id, e := range m.entries {
		if e.value != nil {
			ids = append(ids, id)
		}
	}
	return ids
}

func describe(now Time, e *entry) Description {
	v := e.value
	d := Description{ID: e.id, Value: v, State: NameOf(v.State), Heuristic: heuristic(v), AgeMillis: -1}
	vol := e.volatile.clone()
	add := func(p txnlog.Participant, age int64, leftover bool) {
		d.Participants = append(d.Participants, ParticipantDescription{Participant: p, AgeMillis: age, Leftover: leftover})
		d.AgeMillis = max(d.AgeMillis, age)
	}
	// told adds a participant that is being told, or has been.
	told := func(p txnlog.Participant, sequence int64) {
		age := int64(-1)
		if x := vol.drive(refOf(p), sequence); x != nil {
			age = now.Mono - x.since + x.before
			if p.Detail == "" {
				p.Detail = x.detail
			}
		}
		add(p, age, sequence == 0)
	}
	opens := slices.DeleteFunc(vol.opens(), func(o open) bool { return vol.driving(o.ref()) })
	undecided := vol.ending != nil || !busy(v) && len(opens) > 0
	for _, p := range v.Participants {
		// Torn ones are always shown: what goes on beside them must not hide from
		// an operator why the id stands still. So are pending ones.
		if !undecided || isHeuristic(p) || isPending(p) {
			told(p, v.Sequence)
		}
	}
	if x := vol.ending; x != nil {
		d.State = NameOngoing
		for _, p := range participantsOf(x.refs) {
			told(p, x.sequence)
			d.AgeMillis = max(d.AgeMillis, 0)
		}
	}
	for _, o := range opens {
		known := func(p ParticipantDescription) bool { return refOf(p.Participant) == o.ref() }
		if undecided && !slices.ContainsFunc(d.Participants, known) {
			d.State = NameOngoing
			add(o.participant(), now.Mono-o.firstSeen+o.before, false)
		}
	}
	for _, p := range v.Leftovers {
		told(p, 0)
	}
	return d
}
