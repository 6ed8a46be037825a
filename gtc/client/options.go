package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Defaults and limits of Options.
const (
	defaultTransactionTimeout = time.Minute
	defaultAskTimeout         = 10 * time.Second
	shortestBackoff           = 20 * time.Millisecond
	longestBackoff            = time.Second

	maxRing = 16

	// noTransactionTimeout is the transaction timeout that Kafka stores for a
	// transaction that it never ends by itself (4.0.0 and older do after these
	// 24.8 days). Only the global timeout ends
	// an undecided transaction (case: a participant that times out by itself
	// between the vote and its EndTxn ends against the decision).
	noTransactionTimeout = math.MaxInt32 * time.Millisecond
)

// Options configure Open.
type Options struct {
	// GlobalTransactionalID is the stable name of the application instance at
	// the coordinator. The same string is the transactional.id on every
	// cluster, so its ACLs are those of the TransactionalId resource. Two
	// clients of one id fence each other, the later one wins.
	GlobalTransactionalID string

	// Coordinator are addresses (host:port) of any nodes of the coordinator;
	// they are asked which one coordinates the id. CoordinatorOpts are for
	// the connections to them: TLS, SASL, logger. Seed brokers and
	// versions among them are overruled.
	Coordinator     []string
	CoordinatorOpts []kgo.Opt

	// CoordinatorHooks are kgo's hooks (kprom, kotel) for the connections to
	// the coordinator, as Cluster.Hooks for those to a cluster.
	CoordinatorHooks []kgo.Hook

	// Clusters are the participants under the names that Produce uses.
	Clusters map[string]Cluster

	// Ring is the number of global transactional ids that the client takes
	// turns with, up to 16; 0 and 1 are one. A cluster writes the markers of
	// a transaction after it has acknowledged its end, and refuses the next
	// one of the same id until then (on Kafka about 20 ms, which is most of a
	// short transaction's time). With a ring the next transaction has another
	// id, and several may be open at once; Begin says what holds of their
	// order. Every id has a producer on each cluster, and connections of its
	// own.
	//
	// The first id is GlobalTransactionalID, the others have ".ring-1",
	// ".ring-2" and so on behind it: with Ring above 1 the ACLs of the
	// TransactionalId resource, of the application and of the coordinator, on
	// every cluster, must cover those too (prefixed). Open fences them all,
	// also those of an earlier life with a larger ring.
	Ring int

	// VerifyCommits has Commit look, after the decision, at every partition
	// that was written to and every group offset (Txn.WaitVisible), and fail
	// with a *ContradictionError where one does not show the commit: Kafka's
	// own commit does not notice that an operator has written an abort marker,
	// or that records were deleted. It costs, for each partition, a look-up,
	// two ListOffsets and a Fetch of what lies between its first record and
	// its marker, and READ on the topics, without which Commit returns a
	// *PendingError when its context ends.
	VerifyCommits bool

	// TransactionTimeout bounds an undecided transaction: the coordinator
	// aborts it when it is older, also when this client has died. It must be
	// within the coordinator's global.transaction.max.timeout.ms. Default
	// one minute.
	TransactionTimeout time.Duration

	// AskTimeout bounds one request to the coordinator, after which it is
	// asked again; how often is for the contexts of the calls. Default ten
	// seconds.
	AskTimeout time.Duration

	// BackoffMin and BackoffMax are the first and the longest pause between
	// two requests to the coordinator when one has failed. Default 20 ms and
	// one second.
	BackoffMin, BackoffMax time.Duration
}

// TwoPhaseCommit says how a cluster is told never to end a transaction by
// itself. Either way it must have opted in.
type TwoPhaseCommit int8

const (
	// TwoPhaseCommitAuto asks for two-phase commit (KIP-939, InitProducerId
	// v6) where the cluster offers and allows it, and else as
	// TwoPhaseCommitOff.
	TwoPhaseCommitAuto TwoPhaseCommit = iota
	// TwoPhaseCommitOn needs transaction.two.phase.commit.enable=true, up to
	// Kafka 4.4 with unstable.api.versions.enable=true, and the operation
	// TWO_PHASE_COMMIT on the transactional id.
	TwoPhaseCommitOn
	// TwoPhaseCommitOff uses stable APIs only: the longest timeout there is,
	// for which the cluster needs transaction.max.timeout.ms=2147483647.
	TwoPhaseCommitOff
)

// Cluster is one participant.
type Cluster struct {
	// ClientOpts are the options of the producer on this cluster, seed
	// brokers at least. Idempotence and acks=all are kgo's defaults and
	// needed. The transactional id and its timeout are overruled.
	// kgo.MetadataMinAge is 100 ms when it is not among them.
	//
	// The producer may be replaced by a new one between two transactions, so
	// options for consuming do not belong here: consume with another client.
	ClientOpts []kgo.Opt

	// Dialer opens the producer's connections; nil means a plain
	// net.Dialer. It takes the place of kgo.Dialer and kgo.DialTLSConfig,
	// which must not be among ClientOpts: the client has its own, which
	// wraps this one. For TLS: (&tls.Dialer{Config: c}).DialContext.
	Dialer func(ctx context.Context, network, address string) (net.Conn, error)

	// Hooks are kgo's hooks (kprom, kotel) for all connections to the cluster.
	// Behind them are several kgo clients, and new ones take the place of old
	// ones. A hook is told of the first one only, before its first connection,
	// and of the end when the Client closes; kprom registers its metrics then,
	// and would panic at a second one. So a hook that implements
	// kgo.HookNewClient belongs here and not into kgo.WithHooks among
	// ClientOpts.
	Hooks []kgo.Hook

	// ID is the cluster id expected; empty takes what the cluster says.
	ID string

	// TwoPhaseCommit is how the cluster is told not to end transactions.
	TwoPhaseCommit TwoPhaseCommit
}

// withDefaults checks o and fills it in.
func (o Options) withDefaults() (Options, error) {
	if o.GlobalTransactionalID == "" {
		return o, errors.New("client: GlobalTransactionalID is empty: give the application instance a stable name")
	}
	if len(o.Coordinator) == 0 {
		return o, errors.New("client: Coordinator is empty: give the address of a node of the coordinator")
	}
	if len(o.Clusters) == 0 {
		return o, errors.New("client: Clusters is empty: name the clusters that take part")
	}
	if o.Ring < 0 || o.Ring > maxRing {
		return o, fmt.Errorf("client: Ring %d is not between 0 and %d", o.Ring, maxRing)
	}
	if err := orDefault("TransactionTimeout", &o.TransactionTimeout, defaultTransactionTimeout); err != nil {
		return o, err
	}
	if o.TransactionTimeout > noTransactionTimeout {
		return o, fmt.Errorf("client: TransactionTimeout %v is longer than %v", o.TransactionTimeout, noTransactionTimeout)
	}
	if err := orDefault("AskTimeout", &o.AskTimeout, defaultAskTimeout); err != nil {
		return o, err
	}
	if err := orDefault("BackoffMin", &o.BackoffMin, shortestBackoff); err != nil {
		return o, err
	}
	if err := orDefault("BackoffMax", &o.BackoffMax, max(longestBackoff, o.BackoffMin)); err != nil {
		return o, err
	}
	if o.BackoffMax < o.BackoffMin {
		return o, fmt.Errorf("client: BackoffMax %v is below BackoffMin %v", o.BackoffMax, o.BackoffMin)
	}
	for name, c := range o.Clusters {
		if err := c.check(); err != nil {
			return o, fmt.Errorf("client: cluster %q: %w", name, err)
		}
	}
	return o, nil
}

func orDefault(name string, d *time.Duration, value time.Duration) error {
	switch {
	case *d == 0:
		*d = value
	case *d < time.Millisecond:
		return fmt.Errorf("client: %s %v is shorter than a millisecond", name, *d)
	}
	return nil
}

// check finds options that the client's own would silently overrule. kgo has no
// way to look into an option, but refuses the two dialers together.
func (c Cluster) check() error {
	if err := kgo.ValidateOpts(c.ClientOpts...); err != nil {
		return err
	}
	dialer := kgo.Dialer((&net.Dialer{}).DialContext)
	if kgo.ValidateOpts(with(c.ClientOpts, dialer)...) != nil {
		return errors.New("kgo.DialTLSConfig among ClientOpts: set Dialer to (&tls.Dialer{Config: …}).DialContext instead")
	}
	tls := kgo.DialTLS()
	if kgo.ValidateOpts(with(c.ClientOpts, tls)...) != nil {
		return errors.New("kgo.Dialer among ClientOpts: set Cluster.Dialer instead")
	}
	return nil
}

// with returns opts and more in a slice of its own: append could write into
// the caller's.
func with(opts []kgo.Opt, more ...kgo.Opt) []kgo.Opt {
	return append(opts[:len(opts):len(opts)], more...)
}
