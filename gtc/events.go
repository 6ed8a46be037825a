package gtc

import (
	"fmt"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// Time is a reading of both clocks, in milliseconds. Timeouts, back-off and
// ages of undecided transactions run on Mono, which never steps; Wall is
// written into records for people and for the expiry of idle ids.
type Time struct {
	Mono int64
	Wall int64
}

// RequestID ties a Reply to the request that it answers. The IO edge chooses
// it; the core only hands it back.
type RequestID uint64

// ParticipantRef names one participant transaction as a client does.
type ParticipantRef struct {
	ClusterID     string
	ProducerID    int64
	ProducerEpoch int16
}

// An Event is one input of the state machine. Every event that answers an
// effect carries the (epoch, sequence) that the effect was about, and is
// dropped when the id has moved on since.
//
//sumtype:decl
type Event interface{ event() }

// InitRequest is InitGlobalTxn.
type InitRequest struct {
	Request       RequestID
	ID            string
	TimeoutMillis int32
	ClusterIDs    []string
	InstanceID    txnlog.UUID
}

// ParticipantsChecked answers CheckParticipants.
type ParticipantsChecked struct {
	ID      string
	Attempt uint64 // of the CheckParticipants that it answers
	Results []CheckResult
}

// EndRequest is EndGlobalTxn.
type EndRequest struct {
	Request      RequestID
	ID           string
	GlobalEpoch  int32
	Sequence     int64
	Commit       bool
	Participants []ParticipantRef
	// TimeoutMillis is how long the client waits for an answer. What is
	// known by then is the answer.
	TimeoutMillis int32
}

// VotesTaken answers TakeVotes: one vote for each participant, in order.
type VotesTaken struct {
	ID          string
	GlobalEpoch int32
	Sequence    int64
	Votes       []Vote
}

// EndAnswered answers one EndTxn.
type EndAnswered struct {
	ID string
	// Sequence is that of the EndTxn; 0 for a leftover.
	Sequence    int64
	Participant ParticipantRef
	Answer      EndAnswer
}

// ScanCompleted is what one look at one cluster found: all open transactions
// of ids that this partition may know, or the reason that the look failed. A
// failed look proves nothing: what was seen open before still is.
type ScanCompleted struct {
	ClusterID string
	Open      []OpenTransaction
	Failed    string // empty when the look is complete
	// BeganMono is when the look began, on the monotonic clock. What has
	// ended since may stand in it as open.
	BeganMono int64
}

// ResolveRequest is ResolveGlobalTransaction.
type ResolveRequest struct {
	Request RequestID
	ID      string
	Action  ResolveAction
	// ClusterID is the cluster of ResolveGiveUp, empty for the others.
	ClusterID string
}

// Tick tells the machine that time has passed. It is needed when NextDeadline
// is reached and does nothing otherwise.
type Tick struct{}

func (InitRequest) event()         {}
func (ParticipantsChecked) event() {}
func (EndRequest) event()          {}
func (VotesTaken) event()          {}
func (EndAnswered) event()         {}
func (ScanCompleted) event()       {}
func (ResolveRequest) event()      {}
func (Tick) event()                {}

// CheckCode is what InitGlobalTxn's check of one participant found.
type CheckCode int8

// The findings of a check, from best to worst.
const (
	// CheckOK: reachable, the cluster expected, opted in, authorised.
	CheckOK CheckCode = iota
	// CheckUnavailable: it could not be asked; the client may try again.
	CheckUnavailable
	// CheckUnknownCluster: no cluster of that id is configured.
	CheckUnknownCluster
	// CheckClusterIDMismatch: the configured address answers as another
	// cluster.
	CheckClusterIDMismatch
	// CheckNotOptedIn: its settings do not allow a transaction without
	// timeout; Detail names the setting.
	CheckNotOptedIn
	// CheckUnauthorized: the coordinator may not end transactions of the id.
	CheckUnauthorized
)

// CheckResult is the finding for one cluster.
type CheckResult struct {
	ClusterID string
	Code      CheckCode
	Detail    string
}

// VoteCode is what looking at one participant before the decision found.
type VoteCode int8

// The votes.
const (
	// VotePrepared: Ongoing under the same producer id and epoch, without
	// timeout, with partitions.
	VotePrepared VoteCode = iota
	// VoteRefused: it cannot be committed (nothing written, ended, fenced, has a
	// timeout).
	VoteRefused
	// VoteUnavailable: it could not be asked in time.
	VoteUnavailable
)

// Vote is the answer of one participant to the coordinator's look.
type Vote struct {
	Code VoteCode
	// EndTxnVersion is the version to end it with.
	EndTxnVersion int16
	// AuditTopic, AuditPartition, StartMillis: see txnlog.Participant.
	AuditTopic     string
	AuditPartition int32
	StartMillis    int64
	Detail         string
}

// EndOutcome is what one EndTxn, with the look-ups that an ambiguous answer
// needs, has proved.
type EndOutcome int8

// The outcomes of an EndTxn.
const (
	// EndRetry: nothing proved; ask again after a back-off.
	EndRetry EndOutcome = iota
	// EndDone: the participant ended as asked, now or before, or had
	// nothing that could be ended otherwise.
	EndDone
	// EndCommitted: it is committed although abort was asked.
	EndCommitted
	// EndAborted: it is aborted although commit was asked.
	EndAborted
	// EndUnknown: it ended, and neither its answer, nor its state, nor its
	// control markers tell how.
	EndUnknown
	// EndUnfenced: the one-phase commit was not sent, because it goes by an
	// EndTxn below version 5 and nothing has fenced a coordinator that another
	// one has superseded. Counter-example: client and coordinator sleep. The
	// next coordinator's scan aborts, which below v5 leaves the client its epoch.
	// Both wake up, the client writes the rest, and asks: without a record before
	// it, the EndTxn of the old one commits the rest without the beginning.
	EndUnfenced
)

// EndAnswer is the result of one EndTxn.
type EndAnswer struct {
	Outcome EndOutcome
	// NextProducerID and NextProducerEpoch are what the client goes on with;
	// -1 when it must initialise the producer again.
	NextProducerID    int64
	NextProducerEpoch int16
	// EndTxnVersion is the version that was used (the driver chooses when
	// the EndTxn names none).
	EndTxnVersion int16
	// Uncertain: a copy of this request may still reach the cluster later
	// (the connection broke after it was written).
	Uncertain bool
	Detail    string
}

// OpenTransaction is one open participant transaction as a scan sees it.
type OpenTransaction struct {
	ID             string
	ProducerID     int64
	ProducerEpoch  int16
	EndTxnVersion  int16
	AuditTopic     string
	AuditPartition int32
	// StartMillis is when the participant says that it began. It tells two
	// transactions of one producer epoch apart: on transaction.version 1 the
	// epoch stays, and without it the age of the first would be charged to
	// the second.
	StartMillis int64
}

// ResolveAction is what an operator asks for. The numbers travel in
// ResolveGlobalTransaction.
type ResolveAction int8

// The actions of an operator.
const (
	ResolveAbort  ResolveAction = 0 // abort an undecided transaction now
	ResolveRetry  ResolveAction = 1 // tell pending participants again now
	ResolveForget ResolveAction = 2 // forget a heuristic outcome
	ResolveGiveUp ResolveAction = 3 // wait no longer for a cluster that is gone for good
)

// String is the action as an operator calls it.
func (a ResolveAction) String() string {
	names := []string{"abort", "retry", "forget", "give up"}
	if a < 0 || int(a) >= len(names) {
		return fmt.Sprintf("action %d", int8(a))
	}
	return names[a]
}

// An Effect is one output of the state machine, to be carried out by the IO
// edge. None may leave before the records that precede it are durable.
//
//sumtype:decl
type Effect interface{ effect() }

// CheckParticipants asks every named cluster whether it can take part.
type CheckParticipants struct {
	ID         string
	Attempt    uint64
	ClusterIDs []string
}

// TakeVotes looks at every participant, in parallel, until Deadline.
type TakeVotes struct {
	ID           string
	GlobalEpoch  int32
	Sequence     int64
	Participants []ParticipantRef
	// DeadlineMono bounds the look; what has not answered is unavailable.
	DeadlineMono int64
}

// EndTxn ends one participant transaction. At most one is in flight for each
// participant.
type EndTxn struct {
	ID          string
	Sequence    int64 // 0 for a leftover
	Participant txnlog.Participant
	Commit      bool
	// OnePhase: the participant's answer is the decision (R5). On an abort it
	// says that the participant is the only one, so that an earlier
	// coordinator may have committed it without a record: an answer that
	// proves nothing must not be taken for an abort.
	OnePhase bool
	// Fenced: a record was forced after this one-phase commit was asked for, so
	// nobody else owned the log then. Below EndTxn v5 it needs that (EndUnfenced).
	Fenced bool
}

// Reply answers a request about ID.
type Reply struct {
	ID       string
	Request  RequestID
	Response Response
}

func (CheckParticipants) effect() {}
func (TakeVotes) effect()         {}
func (EndTxn) effect()            {}
func (Reply) effect()             {}

// Code is the core's result of a request. The IO edge maps it to a Kafka error
// code; KIP.md has the table.
type Code int8

// The result codes.
const (
	CodeNone                   Code = iota
	CodeConcurrentTransactions      // a decision of this id is being completed; ask again
	CodeFenced                      // a newer client instance has taken the id over, or its session ended
	CodeInvalidRequest              // contradicts itself or an earlier copy of it
	CodeInvalidTxnState             // the sequence number is not the next one
	CodeInvalidTimeout              // timeout outside the allowed range
	CodeUnknownID                   // the id was never initialised here, or has expired
	CodeOutcomeTooOld               // decided once, and no longer remembered
	CodeParticipantUnavailable      // a participant could not be asked; ask again
	CodeUnknownParticipant          // no such cluster is configured, or it is not of the session
	CodeClusterIDMismatch
	CodeNotOptedIn
	CodeParticipantUnauthorized
	CodeHeuristicOutcome // a participant ended against the decision, or nobody can tell
	CodePolicyViolation  // a limit of this coordinator is reached
)

// Outcome is what is known of a global transaction. The numbers travel in
// EndGlobalTxn.
type Outcome int8

// The outcomes.
const (
	OutcomeUnknown   Outcome = 0 // not decided yet, or not known: ask again
	OutcomeCommitted Outcome = 1
	OutcomeAborted   Outcome = 2
)

// Response is the answer to any request. Which fields are set depends on the
// request.
type Response struct {
	Code    Code
	Message string
	// InitGlobalTxn: the epoch and the number of the next transaction, or
	// the clusters that failed their check.
	GlobalEpoch int32
	Sequence    int64
	Checks      []CheckResult
	// ResolveGlobalTransaction: the state after it.
	State txnlog.State
	// EndGlobalTxn: the decision and where each participant stands.
	Outcome      Outcome
	Participants []txnlog.Participant
}

// A Change is one modification of the machine's state, made by Apply alone:
// live, in the order that Step returned them, and on load.
//
//sumtype:decl
type Change interface{ change() }

// Persist puts a record into the log and into the state.
type Persist struct {
	Record txnlog.Record
	// Lazy: no effect waits for this record to be durable, because losing it
	// only makes the coordinator ask the participants again. It rides with
	// the next forced append.
	Lazy bool
}

func (Persist) change() {}

// Output is what Step decided: first the changes, then the effects. An effect
// may leave once every record of its id that is not lazy, in this output and
// before it, is durable. Records of other ids need not be waited for: an
// effect says nothing about them.
type Output struct {
	Changes []Change
	Effects []Effect
}
