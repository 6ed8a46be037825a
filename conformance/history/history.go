// Package history is what clients did and what readers saw, and the judge of
// it: Check finds where the two cannot both be true under the guarantees of
// global transactions. It is made in the manner of Jepsen's Kafka workload
// (aborted read, lost write, duplicate, pre-committed read, inconsistent
// offsets), with the one anomaly added that only a global transaction can have:
// torn, in part visible and in part not.
//
// A client writes down what it is about to do before it does it. So the
// history of one that was killed is complete but for its last answer, and a
// transaction without an answer is one whose outcome nobody was told: it must
// be visible as a whole or not at all.
//
// Some acts are outside the promises: an operator who gives a cluster up, and a
// cluster that is restored from a copy. They are part of the history, and so is
// what the coordinator reported of them. A contradiction is excused by such an act
// if that can have made it, and must have been reported wherever the coordinator
// was in a position to know; see acts.go.
package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Kind is what an event tells.
type Kind string

// The kinds of events.
const (
	// Open: the client has taken its global transactional id over.
	Open Kind = "open"
	// Begin: a transaction begins.
	Begin Kind = "begin"
	// Write: a value is about to be produced.
	Write Kind = "write"
	// Wrote: the cluster has acknowledged a value, at Offset.
	Wrote Kind = "wrote"
	// Ask: the client is about to call Commit or Abort (Op).
	Ask Kind = "ask"
	// Answer: the call has returned with Outcome.
	Answer Kind = "answer"
	// Rest: the client has nothing open and waits.
	Rest Kind = "rest"
	// Note is for people.
	Note Kind = "note"

	// GaveUp: an operator has told the coordinator to wait no longer for
	// Place.Cluster to end what is pending there of ID.
	GaveUp Kind = "gave up"
	// Forgot: an operator has told the coordinator to forget the heuristic
	// outcomes of ID.
	Forgot Kind = "forgot"
	// Copied: Place.Cluster was copied, at an instant between Began and At.
	Copied Kind = "copied"
	// Restored: Place.Cluster has gone back to its last copy. It was ended after
	// Began, and answers again.
	Restored Kind = "restored"
	// Pending: the coordinator had decided commit, and the participant was still
	// to be told while Place.Cluster was down to be restored.
	Pending Kind = "pending"
	// Contradicted: the coordinator has reported that the participant ended
	// against the decision, as Result says; Unknown is that nobody can tell.
	Contradicted Kind = "contradicted"
	// Reopened: the coordinator has reported that the participant shows open what
	// it had ended.
	Reopened Kind = "reopened"
)

// Outcome is what an answer said of the transaction.
type Outcome string

// The outcomes of an answer.
const (
	Committed Outcome = "committed"
	Aborted   Outcome = "aborted"
	// Unknown: the client was not told.
	Unknown Outcome = "unknown"
	// Heuristic: the client was told that the clusters differ.
	Heuristic Outcome = "heuristic"
)

// The operations of an Ask.
const (
	OpCommit = "commit"
	OpAbort  = "abort"
)

// Place is a partition of a topic on one cluster.
type Place struct {
	Cluster   string `json:"cluster,omitempty"`
	Topic     string `json:"topic,omitempty"`
	Partition int32  `json:"partition,omitempty"`
}

func (p Place) String() string { return fmt.Sprintf("%s/%s-%d", p.Cluster, p.Topic, p.Partition) }

// Producer names a transaction of one id on one cluster, by its producer id and
// epoch. A cluster that has gone back may give the name once more.
type Producer struct {
	ID    int64 `json:"id"`
	Epoch int16 `json:"epoch"`
}

// Event is a step of a client, an act of an operator, or a report of the
// coordinator. Times are of the one wall clock of the machine, in nanoseconds.
type Event struct {
	At     int64   `json:"at"`
	Began  int64   `json:"began,omitempty"` // of an act that was over At
	Client string  `json:"client"`
	Kind   Kind    `json:"kind"`
	ID     string  `json:"id,omitempty"`  // the global transactional id, of a Begin and of what is no step of a client
	Txn    string  `json:"txn,omitempty"` // unique in the history
	Place  Place   `json:"place,omitzero"`
	Value  string  `json:"value,omitempty"` // unique in the history
	Offset int64   `json:"offset,omitempty"`
	Op     string  `json:"op,omitempty"`
	Result Outcome `json:"result,omitempty"`
	// Producer names the transaction on Place.Cluster, of a Wrote and of what the
	// coordinator says of a participant.
	Producer Producer `json:"producer,omitzero"`
	// Ended are the clusters that an answer calls complete.
	Ended []string `json:"ended,omitempty"`
	// Detail is for people: an error, the clusters that are pending.
	Detail string `json:"detail,omitempty"`
}

// Read is a record that a read_committed reader saw. At is when it had the
// answer in hand, so the record was visible no later than that.
type Read struct {
	At     int64  `json:"at"`
	Place  Place  `json:"place"`
	Offset int64  `json:"offset"`
	Value  string `json:"value"`
	// Life is how often the cluster had been restored. Offsets are given anew in
	// each life.
	Life int `json:"life,omitempty"`
}

// History is what Check judges.
type History struct {
	Events []Event // of each client in its order
	// Polled is what readers saw while the clients ran, each record once, of
	// each partition in the order seen.
	Polled []Read
	// Final is what is visible when all is over, each partition in its order.
	Final []Read
}

// Recorder writes events as JSON lines, each in one Write, so that a reader of
// the stream has every event that was recorded before the process ended.
type Recorder struct {
	Client string
	mu     sync.Mutex
	w      io.Writer
	err    error
}

// NewRecorder returns a recorder of a client's events.
func NewRecorder(w io.Writer, client string) *Recorder { return &Recorder{Client: client, w: w} }

// Record stamps and writes an event. What follows in the program happens after
// it is written.
func (r *Recorder) Record(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.Client, e.At = r.Client, time.Now().UnixNano()
	line, err := json.Marshal(e)
	if err == nil {
		_, err = r.w.Write(append(line, '\n'))
	}
	r.err = errors.Join(r.err, err)
}

// Err is the first failure: the history is not complete.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Scan calls f for every event of a stream, to its end. A last line without its
// end was being written when its writer was killed: what it announces was not
// begun, and it is left out.
func Scan(r io.Reader, f func(Event)) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("history: %w", err)
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("history: %q: %w", line, err)
		}
		f(e)
	}
}
