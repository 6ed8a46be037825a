package verdict

import "fmt"

// The two versions of EndTxn that are used.
const (
	// EndTxnKeeps leaves the producer epoch as it is (transaction.version 0
	// and 1, Apache Kafka 3.x).
	EndTxnKeeps = 4
	// EndTxnBumps moves the epoch with every end (transaction.version 2,
	// KIP-890), so that an epoch names one transaction.
	EndTxnBumps = 5
)

// Verdict is what follows from one answer to EndTxn.
type Verdict int8

// The verdicts.
const (
	// Done: the participant has ended as asked, durably.
	Done Verdict = iota + 1
	// Retry: nothing is proved; ask again after a back-off.
	Retry
	// Alarm: as Retry, and an operator has to act.
	Alarm
	// Prove: the participant is not, or no longer, open under this producer
	// id and epoch, which has several possible causes. Ask once more over a
	// fresh connection after a new FindCoordinator; if the answer stays, look
	// at the state, then at the control markers.
	Prove
)

func (v Verdict) String() string {
	return [...]string{"?", "done", "retry", "retry, and tell the operator", "prove"}[v]
}

// Answer is one row: the code that EndTxn was answered with, and what follows
// for each version and decision.
type Answer struct {
	Code int16
	Name string // Kafka's name of the code

	CommitV5, AbortV5, CommitV4, AbortV4 Verdict

	// Means says what the code can stand for; E is the participant's epoch.
	Means string
}

// Answers is what each answer to EndTxn proves. An answer that is not in the
// table proves nothing and is retried: a code invented after this was written
// must never end a participant. Measured on Apache Kafka 4.4.0 at
// transaction.version 2 (v5) and 1 (v4), and on 3.9.1 (v4); the states in
// brackets are those that the transaction coordinator was in.
var Answers = []Answer{
	{
		0, "NONE", Done, Done, Done, Done,
		"ended as asked, now or by an earlier copy. v5 aborts also what was never begun, and then moves the epoch. " +
			"v4 ends whatever is open under E, a later transaction included, so it is sent only when the transaction is known to be the one decided about",
	},
	{
		48, "INVALID_TXN_STATE", Prove, Prove, Prove, Prove,
		"commit: nothing was written (Empty at E; v5 also Complete* at E), or aborted (PrepareAbort, CompleteAbort; v5 at E+1: also by timeout). " +
			"abort: committed (PrepareCommit, CompleteCommit; v5 at E+1), or, v4 only, nothing was written (Empty)",
	},
	{
		90, "PRODUCER_FENCED", Prove, Prove, Prove, Prove,
		"the epoch has moved: initialised again, or on v4 aborted by timeout, or on v5 gone on to a later transaction. " +
			"It may have committed before, so this is never taken for an outcome",
	},
	{
		47, "INVALID_PRODUCER_EPOCH", Prove, Prove, Prove, Prove,
		"PRODUCER_FENCED in the words of EndTxn v1 and below, and of brokers that are not Apache Kafka",
	},
	{
		49, "INVALID_PRODUCER_ID_MAPPING", Prove, Prove, Prove, Prove,
		"the id is unknown or has expired, or has another producer id: after epoch 32766 a new one is handed out. " +
			"v5 recognises a repeated end across that change, v4 does not",
	},
	{
		59, "UNKNOWN_PRODUCER_ID", Prove, Prove, Prove, Prove,
		"not answered by Apache Kafka here; brokers that are not it use it for INVALID_PRODUCER_ID_MAPPING",
	},
	{
		105, "TRANSACTIONAL_ID_NOT_FOUND", Prove, Prove, Prove, Prove,
		"not answered by Apache Kafka here; brokers that are not it use it for INVALID_PRODUCER_ID_MAPPING",
	},
	{
		51, "CONCURRENT_TRANSACTIONS", Retry, Retry, Retry, Retry,
		"an end is being carried out (markers are being written), perhaps an earlier copy of this one",
	},
	{
		16, "NOT_COORDINATOR", Retry, Retry, Retry, Retry,
		"the transaction coordinator has moved, perhaps while this was appended: it may have taken effect",
	},
	{
		14, "COORDINATOR_LOAD_IN_PROGRESS", Retry, Retry, Retry, Retry,
		"the transaction coordinator is reading its log",
	},
	{
		15, "COORDINATOR_NOT_AVAILABLE", Retry, Retry, Retry, Retry,
		"no transaction coordinator, or the append did not reach enough replicas: it may have taken effect",
	},
	{
		7, "REQUEST_TIMED_OUT", Retry, Retry, Retry, Retry,
		"not answered by Apache Kafka here, which says COORDINATOR_NOT_AVAILABLE: the append may have taken effect",
	},
	{
		-1, "UNKNOWN_SERVER_ERROR", Retry, Retry, Retry, Retry,
		"the broker failed: it may have taken effect",
	},
	{
		53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", Alarm, Alarm, Alarm, Alarm,
		"the coordinator's principal may not write to the transactional id: ends once WRITE is granted",
	},
	{
		31, "CLUSTER_AUTHORIZATION_FAILED", Alarm, Alarm, Alarm, Alarm,
		"not answered by Apache Kafka here; a cluster that refuses the coordinator's principal: ends once it is let in",
	},
	{
		35, "UNSUPPORTED_VERSION", Alarm, Alarm, Alarm, Alarm,
		"the broker does not know this version of EndTxn: ends once it is upgraded",
	},
	{
		42, "INVALID_REQUEST", Alarm, Alarm, Alarm, Alarm,
		"the broker takes the request for malformed: a fault of this program or of the broker",
	},
}

const (
	codeUnsupportedVersion = 35
	codeInvalidTxnState    = 48
)

// answerTo finds the row of an answer and what follows from it.
func answerTo(code, version int16, commit bool) (name string, v Verdict) {
	for _, a := range Answers {
		switch {
		case a.Code != code:
		case version >= EndTxnBumps && commit:
			return a.Name, a.CommitV5
		case version >= EndTxnBumps:
			return a.Name, a.AbortV5
		case commit:
			return a.Name, a.CommitV4
		default:
			return a.Name, a.AbortV4
		}
	}
	return fmt.Sprintf("error code %d", code), Retry
}
