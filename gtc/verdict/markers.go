package verdict

import (
	"errors"
	"fmt"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// ErrNoMarker says that the partition has been read to its end, or is gone, and proves
// nothing.
var ErrNoMarker = errors.New("no control marker proves how it ended")

// clockSkewMillis is how far the clocks of two brokers of one cluster may be apart:
// the start of a transaction is of the transaction coordinator's clock, a marker's
// time of the partition leader's.
const clockSkewMillis = 1000

// Markers is told the batches of a partition in order and finds the control marker
// that ended a participant transaction. It is the last resort, when the transaction
// coordinator of the cluster has gone on: an application was initialised anew after
// an outcome that we have not heard of.
//
// Which transaction does a marker end? The one whose records precede it: the
// first marker of a producer id after records of (producer id, epoch E) ends
// E's transaction. Where no record was seen (the application stamped them far
// in the past, and reading began after them), version 5 markers carry E+1,
// also those of a timeout or a fence (measured on 4.4.0); version 4 markers
// carry E, and E+1 when a fence aborted it (measured on 4.4.0 at
// transaction.version 1 and on 3.9.1).
//
// Version 5: that names one transaction. Version 4: E may have had transactions
// before and after, so time decides: the marker of the one before is older than
// the start, the marker of p younger. Within the skew of the brokers' clocks
// both are possible, and the answer counts only if they agree.
type Markers struct {
	p       txnlog.Participant
	version int16
	// records is the epoch of the producer's records seen since its last
	// marker, -1 when none.
	records int16
	// near is what the markers close to the start say: they commit, or not.
	near  []bool
	found bool
}

// NewMarkers looks for the end of a participant that is ended with the version given.
func NewMarkers(p txnlog.Participant, version int16) *Markers {
	return &Markers{p: p, version: version, records: -1}
}

// Found reports that no later batch can change the result.
func (m *Markers) Found() bool { return m.found }

// Records says that a batch of records follows, of this producer id and epoch.
func (m *Markers) Records(producerID int64, epoch int16) {
	if producerID == m.p.ProducerID && !m.found {
		m.records = epoch
	}
}

// Marker says that a control marker follows, stamped by the partition's leader.
func (m *Markers) Marker(producerID int64, epoch int16, commit bool, millis int64) {
	if producerID != m.p.ProducerID || m.found {
		return
	}
	records := m.records
	m.records = -1
	e := m.p.ProducerEpoch
	if m.version >= EndTxnBumps {
		if records == e || records == -1 && epoch == e+1 {
			m.near, m.found = []bool{commit}, true
		}
		return
	}
	ours := epoch == e || epoch == e+1 && !commit
	if records != -1 {
		ours = records == e
	}
	switch start := m.p.StartMillis; {
	case !ours || millis < start-clockSkewMillis:
	case millis <= start+clockSkewMillis:
		m.near = append(m.near, commit)
	default:
		m.near, m.found = append(m.near, commit), true
	}
}

// Result says whether it was committed; the error is ErrNoMarker when the markers do
// not tell.
func (m *Markers) Result() (commit bool, err error) {
	if len(m.near) == 0 {
		return false, ErrNoMarker
	}
	for _, c := range m.near {
		if c != m.near[0] {
			return false, fmt.Errorf("%w: markers of neighbouring transactions disagree", ErrNoMarker)
		}
	}
	return m.near[0], nil
}
