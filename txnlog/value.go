package txnlog

// UUID is the client instance id of InitGlobalTxn, in Kafka's byte order.
type UUID [16]byte

// State is the durable state of a global transactional id. The numbers are
// written to the log and must never be reused.
type State int8

// The states and their meaning; KIP.md has the table of transitions.
const (
	// StateEmpty: a session exists and nothing of it has been decided.
	StateEmpty State = 0
	// StatePrepareCommit: commit is decided and durable; participants are
	// being told, for ever, until each has answered.
	StatePrepareCommit State = 1
	// StatePrepareAbort: the same for abort.
	StatePrepareAbort State = 2
	// StateCompleteCommit: every participant has ended after a commit
	// decision (some perhaps heuristically).
	StateCompleteCommit State = 3
	// StateCompleteAbort: the same after an abort decision.
	StateCompleteAbort State = 4
	// StateDead: the id has expired and its tombstone is being written.
	StateDead State = 5
)

// ParticipantState is what is known of one participant after a decision. The
// numbers are written to the log and travel in EndGlobalTxn and
// DescribeGlobalTransactions.
type ParticipantState int8

// The states of a participant.
const (
	// ParticipantPending: it has not acknowledged the decision yet.
	ParticipantPending ParticipantState = 0
	// ParticipantComplete: it ended as decided.
	ParticipantComplete ParticipantState = 1
	// ParticipantHeuristicCommit: it committed although abort was decided.
	ParticipantHeuristicCommit ParticipantState = 2
	// ParticipantHeuristicAbort: it aborted although commit was decided.
	ParticipantHeuristicAbort ParticipantState = 3
	// ParticipantHeuristicUnknown: it has ended, nobody can tell how; or an
	// operator has given it up.
	ParticipantHeuristicUnknown ParticipantState = 4
	// ParticipantOrphaned stands in Leftovers only: the abort of an earlier
	// transaction was decided, and this participant has not acknowledged it yet.
	// Nothing waits for it, and it is told for ever.
	ParticipantOrphaned ParticipantState = 5
)

// Heuristic reports whether the participant ended, or may have ended, against
// the decision.
func (s ParticipantState) Heuristic() bool {
	return s >= ParticipantHeuristicCommit && s <= ParticipantHeuristicUnknown
}

// Participant is one cluster's part in one global transaction. Together with
// the id, (ProducerID, ProducerEpoch) names the one participant transaction
// that the decision is about; no message to the cluster goes without them (R2).
type Participant struct {
	ClusterID     string
	ProducerID    int64
	ProducerEpoch int16
	// EndTxnVersion is the version of EndTxn to end it with, chosen by the
	// cluster's finalized transaction.version when it was voted on: retrying
	// with another version gives other answers. 0 when it was not voted on;
	// the driver then chooses and says what it chose.
	EndTxnVersion int16
	State         ParticipantState
	// NextProducerID and NextProducerEpoch are what the client goes on with
	// after the end; -1 means that it must initialise the producer again.
	NextProducerID    int64
	NextProducerEpoch int16
	// AuditTopic and AuditPartition name one partition that the participant
	// wrote to, so that its control marker can be read later; AuditTopic is
	// empty when unknown.
	AuditTopic     string
	AuditPartition int32
	// StartMillis is when the participant says that this transaction began:
	// where an audit starts to read, and on transaction.version 1, where the
	// epoch stays, the only thing that tells it from its neighbours.
	StartMillis int64
	// Detail says in words what was seen, for operators; empty when all is
	// well.
	Detail string
	// UnknownTags are the tagged fields that a newer writer gave this
	// participant, as they stand in the record, kept on rewrite. They are a
	// string so that a Participant stays comparable.
	UnknownTags string
}

// GlobalTransaction is the value of a record: all that is remembered of one
// global transactional id.
type GlobalTransaction struct {
	State State
	// GlobalEpoch is the coordinator's fence for clients of the id.
	GlobalEpoch int32
	// Sequence is the number of the last decided transaction; one below the
	// first, which is a wall clock time, when there was none. It goes on over
	// epochs, and the next is greater, by 1 unless the lazily written end of
	// a one-phase commit was lost.
	Sequence int64
	// TimeoutMillis bounds an undecided transaction.
	TimeoutMillis int32
	// InstanceID names the client instance that owns the epoch,
	// PreviousInstanceID the one it fenced: a late copy of the previous
	// instance's InitGlobalTxn must not fence the present one.
	InstanceID         UUID
	PreviousInstanceID UUID
	// SessionEnded: the coordinator aborted a transaction of this session
	// because of its timeout or an operator; a later EndGlobalTxn needs
	// InitGlobalTxn first.
	SessionEnded bool
	// ClusterIDs are the participants the session may use.
	ClusterIDs []string
	// FormerClusterIDs are clusters that earlier sessions of the id named and
	// this one does not. A client of an earlier session can still begin a
	// transaction there, so the recovery scan goes on ending what it finds open;
	// on a cluster that no session ever named it ends nothing.
	FormerClusterIDs []string
	// Participants are those of transaction Sequence.
	Participants []Participant
	// Leftovers are open participant transactions that belong to no live
	// session (a cluster the id no longer uses, or a session that ended),
	// found by the recovery scan and being aborted. They are recorded before
	// their EndTxn leaves (R1) and need no sequence number, because no
	// client can still ask for their commit.
	Leftovers []Participant
	// Reason says why an abort was decided; empty for a commit and for an
	// abort that the client asked for.
	Reason string
	// DecidedMillis and UpdatedMillis are wall clock times for people and
	// for expiry; no transition of an undecided transaction depends on them.
	DecidedMillis int64
	UpdatedMillis int64
	// UnknownTags are tagged fields of a newer writer, kept on rewrite.
	UnknownTags map[uint32][]byte
}

// Clone returns a copy that shares no mutable memory with v. Strings and the
// lists of clusters are shared, because they are never changed in place.
func (v *GlobalTransaction) Clone() *GlobalTransaction {
	c := *v
	c.Participants = append([]Participant(nil), v.Participants...)
	c.Leftovers = append([]Participant(nil), v.Leftovers...)
	return &c
}
